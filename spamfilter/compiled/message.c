/* Reads a mail: its header fields, its words with a space between them, as spamfilter/message.py does, and its line ends,
 * as spamfilter/line_ends.py does.
 *
 * tests/test_message_helper.py and tests/test_line_ends.py hold both sides together.
 *
 * Guarantee: reads nothing beyond the objects it is given, whatever is in them; a wrong type is a TypeError.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string.h>

typedef unsigned char byte;

static int
is_space(char character)
{
    return character == ' ' || (character >= '\t' && character <= '\r');
}

PyDoc_STRVAR(unix_doc,
"unix(mail, most) -> text\n\n"
"At most so many bytes of a mail, LF in the place of each CR LF; no more than twice as many are looked at.");

static PyObject *
message_unix(PyObject *module, PyObject *args)
{
    Py_buffer mail;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(args, "y*n", &mail, &most))
        return NULL;
    Py_ssize_t size = mail.len;
    if (most < 0)
        most = 0;
    if (size - most > most)
        size = 2 * most;
    PyObject *text = PyBytes_FromStringAndSize(NULL, size);
    if (text != NULL) {
        char *start = PyBytes_AS_STRING(text), *to = start;
        const char *here = mail.buf, *end = here + size;
        while (here < end && to - start < most) {
            const char *cr = memchr(here, '\r', (size_t)(end - here));
            const char *next = cr ? cr : end;
            memcpy(to, here, (size_t)(next - here));
            to += next - here;
            here = next;
            if (cr && (here + 1 == end || here[1] != '\n'))
                *to++ = *here++; /* it stands alone */
            else if (cr)
                here++;
        }
        _PyBytes_Resize(&text, to - start < most ? to - start : most);
    }
    PyBuffer_Release(&mail);
    return text;
}

/* What is looked for while the fields of a header are read, and what has been found. */
typedef struct {
    PyObject *kept_name, *value, *fields, *written;
    Py_ssize_t room, name_size, value_size;
} Header;

/* The name that is kept of a field, as `kept_name` gives it; of a long one no more than it takes to see that. */
static PyObject *
name_of(const Header *header, const char *line, Py_ssize_t size)
{
    if (size > header->name_size) {
        while (size > 0 && is_space(line[size - 1]))
            size--;
        if (size > header->name_size)
            size = header->name_size + 1;
    }
    PyObject *raw = PyBytes_FromStringAndSize(line, size);
    PyObject *name = raw ? PyObject_CallOneArg(header->kept_name, raw) : NULL;
    Py_XDECREF(raw);
    if (name && name != Py_None && !PyBytes_Check(name)) {
        PyErr_SetString(PyExc_TypeError, "a name is bytes or None");
        Py_CLEAR(name);
    }
    return name;
}

/* Whether there is anything beyond ASCII, or =? as in an encoded word. Without a branch for each byte, so that many are
 * looked at together. */
__attribute__((optimize("O3"))) static int
is_encoded(const byte *text, size_t size)
{
    byte found = size > 0 ? text[0] & 0x80 : 0;
    for (size_t i = 1; i < size; i++)
        found |= (byte)((text[i] & 0x80) | ((text[i] == '?') & (text[i - 1] == '=')));
    return found;
}

/* As `value` gives it, with what it takes of the room. */
static PyObject *
decoded(const Header *header, const char *text, Py_ssize_t size, Py_ssize_t *taken)
{
    PyObject *raw = PyBytes_FromStringAndSize(text, size);
    PyObject *pair = raw ? PyObject_CallOneArg(header->value, raw) : NULL, *value = NULL;
    Py_XDECREF(raw);
    if (pair && !PyTuple_Check(pair))
        PyErr_SetString(PyExc_TypeError, "a value is a tuple of bytes and of what it takes");
    else if (pair && !PyArg_ParseTuple(pair, "Sn", &value, taken))
        value = NULL; /* it may be bytes all the same */
    Py_XINCREF(value);
    Py_XDECREF(pair);
    return value;
}

/* The value of a field, unfolded and cut, and what it takes of the room; where something in it is to be decoded, as
 * `value` gives both. */
static PyObject *
value_of(const Header *header, const char *text, Py_ssize_t size, Py_ssize_t *taken)
{
    if (is_encoded((const byte *)text, (size_t)size))
        return decoded(header, text, size, taken);
    const char *end = text + size;
    while (text < end && is_space(*text))
        text++;
    while (text < end && is_space(end[-1]))
        end--;
    Py_ssize_t most = end - text < header->value_size ? end - text : header->value_size;
    PyObject *value = PyBytes_FromStringAndSize(NULL, most);
    if (value == NULL)
        return NULL;
    char *to = PyBytes_AS_STRING(value), *full = to + most;
    for (; text < end && to < full; text++) {
        int folded = *text == '\n' && (text[1] == ' ' || text[1] == '\t');
        text += folded;
        *to++ = folded ? ' ' : *text;
    }
    *taken = to - PyBytes_AS_STRING(value);
    _PyBytes_Resize(&value, *taken);
    return value;
}

/* Take one field, a line that was folded; returns 1 if it is none, -1 after an error. */
static int
take(Header *header, const char *line, Py_ssize_t size)
{
    const char *colon = memchr(line, ':', (size_t)size);
    if (colon == NULL)
        return size > 0;
    PyObject *name = name_of(header, line, colon - line), *value = NULL, *field = NULL, *written = NULL;
    int said = name == NULL ? -1 : name == Py_None;
    if (said == 0 && PyBytes_GET_SIZE(name) > 0) {
        Py_ssize_t taken = 0;
        value = value_of(header, colon + 1, line + size - colon - 1, &taken);
        field = value ? PyTuple_Pack(2, name, value) : NULL;
        written = field ? PyBytes_FromStringAndSize(line, size) : NULL;
        if (!written || PyList_Append(header->fields, field) < 0 || PyList_Append(header->written, written) < 0)
            said = -1;
        else
            header->room -= PyBytes_GET_SIZE(name) + taken;
    }
    Py_XDECREF(name);
    Py_XDECREF(value);
    Py_XDECREF(field);
    Py_XDECREF(written);
    return said;
}

PyDoc_STRVAR(fields_doc,
"fields(block, lines, fields, size, name_size, value_size, kept_name, value)\n"
"    -> (fields, written, body, lines, size, odd, more)\n\n"
"The header fields of a mail or part, names and values, and the same as they were written; where its body begins; what\n"
"is left of `lines` and `size`; whether a line was no field, and whether there was more than room for. At most so many\n"
"fields are taken, and none once there is no room for another byte. name_size: of a longer one a byte more is looked at.\n"
"value_size: no more is kept.\n"
"kept_name and value: what Python does for a name, and for a value in which something is encoded, which it gives with\n"
"what that takes of `size`. The block does not begin with an empty line.");

static PyObject *
message_fields(PyObject *module, PyObject *args)
{
    PyObject *block, *found = NULL;
    Py_ssize_t lines, most;
    Header header = {0};
    if (!PyArg_ParseTuple(args, "SnnnnnOO", &block, &lines, &most, &header.room, &header.name_size,
                          &header.value_size, &header.kept_name, &header.value))
        return NULL;
    if (header.name_size < 0 || header.value_size < 0)
        return PyErr_Format(PyExc_ValueError, "a name and a value have a size");
    const char *start = PyBytes_AS_STRING(block), *end = start + PyBytes_GET_SIZE(block), *line = start;
    int odd = 0, more = 0, ended = 0;
    header.fields = PyList_New(0);
    header.written = PyList_New(0);
    if (header.fields == NULL || header.written == NULL)
        goto done;
    for (; !ended && lines > 0; lines--) {
        const char *here = line, *newline;
        while ((newline = memchr(here, '\n', (size_t)(end - here))) && (newline[1] == ' ' || newline[1] == '\t'))
            here = newline + 1;
        const char *stop = newline ? newline : end;
        ended = !newline || newline[1] == '\n';
        if (!more && (PyList_GET_SIZE(header.fields) >= most || header.room <= 0)) {
            more = stop > line;
        } else if (!more) {
            int said = take(&header, line, stop - line);
            if (said < 0)
                goto done;
            odd |= said;
        }
        line = newline ? newline + 1 : end;
    }
    if (!ended) { /* there was no room for its lines; at the end of a block nothing follows a line end */
        const char *empty = line;
        while ((empty = memchr(empty, '\n', (size_t)(end - empty))) && empty[1] != '\n')
            empty++;
        more |= (empty ? empty : end) > line;
        line = empty ? empty + 1 : end;
    }
    /* What `line` follows is the line end before the empty line, or nothing. */
    Py_ssize_t body = line < end ? line + 1 - start : end - start;
    found = Py_BuildValue("(OOnnnOO)", header.fields, header.written, body, lines, header.room,
                          odd ? Py_True : Py_False, more ? Py_True : Py_False);
done:
    Py_XDECREF(header.fields);
    Py_XDECREF(header.written);
    return found;
}

PyDoc_STRVAR(joined_doc,
"joined(text) -> text\n\n"
"b' '.join(text.split()): one space in the place of each gap, and none at the ends.");

static PyObject *
message_joined(PyObject *module, PyObject *text)
{
    char *here, *to;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(text, &here, &size) < 0)
        return NULL;
    PyObject *joined = PyBytes_FromStringAndSize(NULL, size);
    if (joined == NULL)
        return NULL;
    char *start = to = PyBytes_AS_STRING(joined);
    for (const char *end = here + size; here < end; here++) {
        if (!is_space(*here))
            *to++ = *here;
        else if (to > start && to[-1] != ' ')
            *to++ = ' ';
    }
    if (to > start && to[-1] == ' ')
        to--;
    _PyBytes_Resize(&joined, to - start);
    return joined;
}

/* Whether any byte behind the first is LF without a CR before it, or no LF behind one. Without a branch for each, so that
 * many are looked at together. */
__attribute__((optimize("O3"))) static int
any_bare(const byte *text, size_t size)
{
    byte bare = 0;
    for (size_t i = 1; i < size; i++)
        bare |= (byte)((text[i] == '\n') ^ (text[i - 1] == '\r'));
    return bare;
}

PyDoc_STRVAR(bare_doc,
"bare(text) -> bool\n\n"
"Whether any CR or LF of the text stands alone.");

static PyObject *
message_bare(PyObject *module, PyObject *text)
{
    enum { LOOKED_AT = 1 << 16 };
    Py_buffer buffer;
    if (PyObject_GetBuffer(text, &buffer, PyBUF_SIMPLE) < 0)
        return NULL;
    const byte *start = buffer.buf;
    size_t size = (size_t)buffer.len;
    int found = size > 0 && (start[0] == '\n' || start[size - 1] == '\r');
    for (size_t at = 0; at + 1 < size && !found; at += LOOKED_AT) /* each begins with the byte that it is measured by */
        found = any_bare(start + at, size - at <= LOOKED_AT ? size - at : LOOKED_AT + 1);
    PyBuffer_Release(&buffer);
    return PyBool_FromLong(found);
}

PyDoc_STRVAR(dot_doc,
"dot(text, start) -> place\n\n"
"The first CR LF before a dot, from `start` on; -1 if there is none.");

static PyObject *
message_dot(PyObject *module, PyObject *args)
{
    Py_buffer buffer;
    Py_ssize_t start, place = -1;
    if (!PyArg_ParseTuple(args, "y*n", &buffer, &start))
        return NULL;
    if (start >= 0 && start < buffer.len) {
        const char *text = buffer.buf, *end = text + buffer.len, *cr = text + start;
        while ((cr = memchr(cr, '\r', (size_t)(end - cr))) && !(end - cr > 2 && cr[1] == '\n' && cr[2] == '.'))
            cr++;
        place = cr ? cr - text : -1;
    }
    PyBuffer_Release(&buffer);
    return PyLong_FromSsize_t(place);
}

static PyMethodDef methods[] = {
    {"unix", message_unix, METH_VARARGS, unix_doc},
    {"fields", message_fields, METH_VARARGS, fields_doc},
    {"joined", message_joined, METH_O, joined_doc},
    {"bare", message_bare, METH_O, bare_doc},
    {"dot", message_dot, METH_VARARGS, dot_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_message", "Line ends, header fields and words of a mail.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__message(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module && PyModule_AddIntConstant(module, "SOURCE", SOURCE) < 0) { /* a checksum: see build.py */
        Py_CLEAR(module);
    }
    return module;
}
