/* What learning does for each word of a message: its count in a table of spamfilter/words.py, and the rows that say so
 * in the store. And which messages bulk training need not look at again.
 *
 * tests/test_learning.py holds it together with what Python does.
 *
 * Guarantee: reads and writes nothing beyond the objects it is given, whatever is in them; a wrong type is a TypeError,
 * sizes that do not fit are a ValueError.
 */
#include "table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

PyDoc_STRVAR(change_doc,
"change(table, keys, changes, column, sign, room, most) -> (vocabulary, used) or None\n\n"
"Add changes, or with sign -1 take them away, of the counts in a column of these keys, each named once. Returns by how\n"
"many words the vocabulary grows, and how many slots of the table are used that were free, at most `room`.\n"
"None, and nothing is changed: a count would leave the range from 0 to `most`, or there is no room.");

static PyObject *
learning_change(PyObject *module, PyObject *args)
{
    Py_buffer keys, changes;
    int column, sign;
    Py_ssize_t room;
    long long most;
    PyObject *found = NULL;
    size_t *slots = NULL;
    Table table;
    if (!PyArg_ParseTuple(args, "O&y*y*iinL", to_changed_table, &table, &keys, &changes, &column, &sign, &room, &most))
        return NULL;
    size_t number = (size_t)keys.len / sizeof(int64_t);
    const int64_t *key = keys.buf, *change = changes.buf;
    if (changes.len != keys.len || (column & ~1) || (sign != 1 && sign != -1) || most < 0) {
        PyErr_SetString(PyExc_ValueError, "each key has its change, to be added or taken away in one of two columns");
        goto done;
    }
    if (table.width == 2 && most > INT32_MAX)
        most = INT32_MAX;
    slots = malloc((number + 1) * sizeof *slots);
    if (slots == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    Py_ssize_t used = 0;
    approach_first(&table, key, number);
    for (size_t i = 0; i < number; i++) {
        approach_next(&table, key, number, i);
        size_t at = slot_of(&table, key[i]);
        int64_t before = has(&table, at, key[i]) ? count_of(&table, at, column) : 0;
        slots[i] = at;
        used += !has(&table, at, key[i]);
        if (change[i] < 0 || change[i] > most || before > most
            || (sign > 0 ? before > most - change[i] : before < change[i]) || key[i] == 0 || at == table.size
            || used > room) {
            found = Py_NewRef(Py_None);
            goto done;
        }
    }
    Py_ssize_t vocabulary = 0;
    for (size_t i = 0; i < number; i++) {
        size_t at = slots[i];
        if (!has(&table, at, key[i])) {
            at = slot_of(&table, key[i]); /* another word may have taken the slot meanwhile */
            if (at == table.size) {
                PyErr_SetString(PyExc_ValueError, "a table has the room that it is said to have");
                goto done;
            }
            *key_at(&table, at) = key[i];
        }
        int64_t before = count_of(&table, at, column), after = before + sign * change[i];
        if (count_of(&table, at, !column) == 0)
            vocabulary += (after > 0) - (before > 0);
        set_count(&table, at, column, after);
    }
    found = Py_BuildValue("(nn)", vocabulary, used);
done:
    free(slots);
    table_close(&table);
    PyBuffer_Release(&keys);
    PyBuffer_Release(&changes);
    return found;
}

/* One word of many messages: where it is spelt, and what has been added to it. */
typedef struct {
    int64_t hash, added[2];
    long long touched;
    const char *spelling;
    Py_ssize_t size;
} Word;

typedef struct {
    uint32_t *places; /* a hash table of numbers of words, counted from 1 */
    Word *words;
    size_t size, used;
} Sum;

static int
sum_open(Sum *sum, size_t size)
{
    *sum = (Sum){.size = size};
    sum->places = calloc(size, sizeof *sum->places);
    sum->words = malloc(size / 2 * sizeof *sum->words);
    return sum->places && sum->words ? 0 : -1;
}

static void
sum_close(Sum *sum)
{
    free(sum->places);
    free(sum->words);
}

static size_t
place_of(const Sum *sum, int64_t hash)
{
    size_t at = (size_t)hash & (sum->size - 1);
    while (sum->places[at] != 0 && sum->words[sum->places[at] - 1].hash != hash)
        at = (at + 1) & (sum->size - 1);
    return at;
}

static int
sum_grow(Sum *sum)
{
    Sum larger;
    if (sum->size > UINT32_MAX / 4 || sum_open(&larger, 2 * sum->size) < 0) {
        if (sum->size <= UINT32_MAX / 4)
            sum_close(&larger);
        return -1;
    }
    memcpy(larger.words, sum->words, sum->used * sizeof *sum->words);
    larger.used = sum->used;
    for (size_t i = 0; i < larger.used; i++)
        larger.places[place_of(&larger, larger.words[i].hash)] = (uint32_t)i + 1;
    sum_close(sum);
    *sum = larger;
    return 0;
}

/* Add one part of what is summed; its spellings are borrowed from it. */
static int
sum_part(Sum *sum, PyObject *part)
{
    Py_buffer ends, hashes, changes;
    const char *text;
    Py_ssize_t size;
    long long touched;
    int column, failed = -1;
    if (!PyTuple_Check(part)) {
        PyErr_SetString(PyExc_TypeError, "a part is a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(part, "y#y*y*y*iL", &text, &size, &ends, &hashes, &changes, &column, &touched))
        return -1;
    size_t number = (size_t)hashes.len / sizeof(int64_t);
    const uint32_t *end = ends.buf;
    const int64_t *hash = hashes.buf, *change = changes.buf;
    if ((size_t)ends.len != number * sizeof *end || changes.len != hashes.len || (column & ~1)) {
        PyErr_SetString(PyExc_ValueError, "each word has an end, a hash and a change, in one of two columns");
        goto done;
    }
    for (size_t i = 0, start = 0; i < number; start = end[i++]) {
        if (end[i] < start || end[i] > (size_t)size) {
            PyErr_SetString(PyExc_ValueError, "a word ends where no text is");
            goto done;
        }
        if (sum->used == sum->size / 2 && sum_grow(sum) < 0) {
            PyErr_NoMemory();
            goto done;
        }
        size_t at = place_of(sum, hash[i]);
        if (sum->places[at] == 0) {
            sum->words[sum->used] = (Word){hash[i], {0, 0}, 0, text + start, (Py_ssize_t)(end[i] - start)};
            sum->places[at] = (uint32_t)++sum->used;
        }
        Word *word = sum->words + sum->places[at] - 1;
        int64_t *added = word->added + column;
        if (touched > word->touched)
            word->touched = touched;
        if (__builtin_add_overflow(*added, change[i], added)) {
            PyErr_SetString(PyExc_ValueError, "the changes of a word are beyond 64 bits");
            goto done;
        }
    }
    failed = 0;
done:
    PyBuffer_Release(&ends);
    PyBuffer_Release(&hashes);
    PyBuffer_Release(&changes);
    return failed;
}

static int
by_spelling(const void *one, const void *other)
{
    const Word *a = one, *b = other;
    int order = memcmp(a->spelling, b->spelling, (size_t)(a->size < b->size ? a->size : b->size));
    return order ? order : (a->size > b->size) - (a->size < b->size);
}

static PyObject *
row_of(PyObject *voice, const Word *word)
{
    PyObject *spelt = PyUnicode_DecodeUTF8(word->spelling, word->size, NULL);
    return spelt ? Py_BuildValue("(ONLLL)", voice, spelt, (long long)word->added[0], (long long)word->added[1],
                                 word->touched) : NULL;
}

PyDoc_STRVAR(rows_doc,
"rows(voice, parts, together) -> (more, less)\n\n"
"Rows voice, word, ham, spam, touched of words whose counts change by parts (text, ends, hashes, changes, column,\n"
"touched) together, touched by the last of them, in the order of their spellings: those of which nothing is taken\n"
"away, in lists of so many rows, the last one of fewer, and tuples of the others.");

static PyObject *
learning_rows(PyObject *module, PyObject *args)
{
    PyObject *voice, *parts, *more = NULL, *less = NULL, *group = NULL, *found = NULL;
    Py_ssize_t together;
    Sum sum = {0};
    if (!PyArg_ParseTuple(args, "UO!n", &voice, &PyList_Type, &parts, &together))
        return NULL;
    if (sum_open(&sum, 1 << 15) < 0 || (more = PyList_New(0)) == NULL || (less = PyList_New(0)) == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(parts); i++)
        if (sum_part(&sum, PyList_GET_ITEM(parts, i)) < 0)
            goto done;
    qsort(sum.words, sum.used, sizeof *sum.words, by_spelling);
    for (size_t i = 0; i < sum.used; i++) {
        const Word *word = sum.words + i;
        if (word->added[0] == 0 && word->added[1] == 0)
            continue;
        PyObject *row = row_of(voice, word);
        if (row == NULL)
            goto done;
        if (word->added[0] < 0 || word->added[1] < 0) {
            int failed = PyList_Append(less, row);
            Py_DECREF(row);
            if (failed)
                goto done;
            continue;
        }
        if (group == NULL || PyList_GET_SIZE(group) >= together * PyTuple_GET_SIZE(row)) {
            Py_XSETREF(group, PyList_New(0));
            if (group == NULL || PyList_Append(more, group) < 0) {
                Py_DECREF(row);
                goto done;
            }
        }
        int failed = 0;
        for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(row); at++)
            failed |= PyList_Append(group, PyTuple_GET_ITEM(row, at)) < 0;
        Py_DECREF(row);
        if (failed)
            goto done;
    }
    found = PyTuple_Pack(2, more, less);
done:
    sum_close(&sum);
    Py_XDECREF(more);
    Py_XDECREF(less);
    Py_XDECREF(group);
    return found;
}

PyDoc_STRVAR(lines_doc,
"lines(text, ends) -> lines or None\n\n"
"The words, each but the last with a line end after it. None if one of them has a line end in it.");

static PyObject *
learning_lines(PyObject *module, PyObject *args)
{
    const char *text;
    Py_ssize_t size;
    Py_buffer ends;
    PyObject *lines = NULL;
    if (!PyArg_ParseTuple(args, "y#y*", &text, &size, &ends))
        return NULL;
    size_t number = (size_t)ends.len / sizeof(uint32_t), start = 0;
    const uint32_t *end = ends.buf;
    if (number == 0 && size > 0) {
        PyErr_SetString(PyExc_ValueError, "a word ends where no text is");
        goto done;
    }
    if (memchr(text, '\n', (size_t)size) != NULL) {
        lines = Py_NewRef(Py_None);
        goto done;
    }
    lines = PyBytes_FromStringAndSize(NULL, size + (Py_ssize_t)(number ? number - 1 : 0));
    if (lines == NULL)
        goto done;
    char *here = PyBytes_AS_STRING(lines);
    for (size_t i = 0; i < number; start = end[i++]) {
        if (end[i] < start || end[i] > (size_t)size || (i + 1 == number && end[i] != (size_t)size)) {
            PyErr_SetString(PyExc_ValueError, "a word ends where no text is");
            Py_CLEAR(lines);
            goto done;
        }
        memcpy(here, text + start, end[i] - start);
        here += end[i] - start;
        if (i + 1 < number)
            *here++ = '\n';
    }
done:
    PyBuffer_Release(&ends);
    return lines;
}

/* Write a number; returns where it ends. A tenth of the time of sprintf. */
static char *
decimal(char *here, uint64_t number)
{
    char digits[20];
    int at = 20;
    do
        digits[--at] = (char)('0' + number % 10);
    while ((number /= 10) != 0);
    memcpy(here, digits + at, (size_t)(20 - at));
    return here + 20 - at;
}

PyDoc_STRVAR(repeated_doc,
"repeated(times) -> text\n\n"
"JSON of an object: place -> occurrences (unsigned 32 bits), where they are not one.");

static PyObject *
learning_repeated(PyObject *module, PyObject *times)
{
    Py_buffer buffer;
    if (PyObject_GetBuffer(times, &buffer, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint32_t *time = buffer.buf;
    size_t number = (size_t)buffer.len / sizeof *time, repeated = 0;
    PyObject *text = NULL;
    for (size_t i = 0; i < number; i++)
        repeated += time[i] != 1;
    /* Two numbers below 2^64, two quotation marks, a colon and a comma. */
    char *start = malloc(repeated * 44 + 2), *here = start;
    if (start == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    *here++ = '{';
    for (size_t i = 0; i < number; i++) {
        if (time[i] == 1)
            continue;
        if (here > start + 1)
            *here++ = ',';
        *here++ = '"';
        here = decimal(here, i);
        *here++ = '"';
        *here++ = ':';
        here = decimal(here, time[i]);
    }
    *here++ = '}';
    text = PyUnicode_FromStringAndSize(start, here - start);
done:
    free(start);
    PyBuffer_Release(&buffer);
    return text;
}

PyDoc_STRVAR(doubted_doc,
"doubted(table, messages, labels, start, end, (logarithms, prior, scale, purity), least) -> place\n\n"
"The first from `start` on of these messages, each the keys of its words, whose log-odds by the soft rule may speak for\n"
"its label (a byte: 0 ham, 1 spam) by no more than `least`; `end` if it is none before. logarithms: of counts and the\n"
"prior, for small counts from 0 on. Right but for rounding, so that `least` needs a margin.");

static PyObject *
learning_doubted(PyObject *module, PyObject *args)
{
    Py_buffer labels, logarithms;
    PyObject *messages, *found = NULL;
    Py_ssize_t start, end;
    double prior, scale, purity, least;
    Table table;
    if (!PyArg_ParseTuple(args, "O&O!y*nn(y*ddd)d", to_table, &table, &PyList_Type, &messages, &labels, &start, &end,
                          &logarithms, &prior, &scale, &purity, &least))
        return NULL;
    const double *logarithm = logarithms.buf;
    int64_t known = logarithms.len / (Py_ssize_t)sizeof *logarithm;
    if (start < 0 || end > PyList_GET_SIZE(messages) || end > labels.len) {
        PyErr_SetString(PyExc_ValueError, "each message has its keys and its label");
        goto done;
    }
    for (; start < end; start++) {
        Py_buffer keys;
        double sum = 0;
        if (PyObject_GetBuffer(PyList_GET_ITEM(messages, start), &keys, PyBUF_SIMPLE) < 0)
            goto done;
        const int64_t *key = keys.buf;
        size_t number = (size_t)keys.len / sizeof *key;
        approach_first(&table, key, number);
        for (size_t i = 0; i < number; i++) {
            int64_t h, s;
            approach_next(&table, key, number, i);
            both_of(&table, key[i], &h, &s);
            if (h != s) {
                double log_ham = h >= 0 && h < known ? logarithm[h] : log((double)h + prior);
                double log_spam = s >= 0 && s < known ? logarithm[s] : log((double)s + prior);
                double apart = fabs((double)s - (double)h);
                sum += (log_spam - log_ham) * sqrt(apart / ((double)s + (double)h + purity));
            }
        }
        PyBuffer_Release(&keys);
        double towards = number ? sum * scale / sqrt((double)number) : 0;
        if (!(((const char *)labels.buf)[start] ? towards > least : -towards > least))
            break;
    }
    found = PyLong_FromSsize_t(start);
done:
    table_close(&table);
    PyBuffer_Release(&labels);
    PyBuffer_Release(&logarithms);
    return found;
}

static PyMethodDef methods[] = {
    {"change", learning_change, METH_VARARGS, change_doc},
    {"rows", learning_rows, METH_VARARGS, rows_doc},
    {"lines", learning_lines, METH_VARARGS, lines_doc},
    {"repeated", learning_repeated, METH_O, repeated_doc},
    {"doubted", learning_doubted, METH_VARARGS, doubted_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_learning", "What learning does for each word of a message.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__learning(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module && PyModule_AddIntConstant(module, "SOURCE", SOURCE) < 0) { /* a checksum: see build.py */
        Py_CLEAR(module);
    }
    return module;
}
