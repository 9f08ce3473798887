/* Finds the words of a message, as spamfilter/bayes/tokens.py does, and their counts in a table of
 * spamfilter/bayes/count_table.py.
 *
 * The words are never made Python objects: they stand one after the other in one string of bytes, each once, with their
 * hashes and occurrences. The hash is Python's own, so that C and Python compute the same one.
 * tests/bayes/test_token_arrays.py compares both sides.
 *
 * Guarantee: reads nothing beyond the objects it is given, whatever is in them; a wrong type is a TypeError.
 */
#include "table.h"

#include <stdlib.h>
#include <string.h>

/* Python's own hash of bytes, by functions that its documentation names: hash_bytes is set when the module is loaded.
 * A Python that was built to hash short strings otherwise (Py_HASH_CUTOFF) is found by self_test.py. */
#if PY_VERSION_HEX >= 0x030E0000
#define hash_bytes Py_HashBuffer
#else
static Py_hash_t (*hash_bytes)(const void *, Py_ssize_t);
#endif

/* As token_arrays.hashed: never 0, which is a free slot of a table. */
static inline int64_t
key_of(const void *word, size_t size)
{
    Py_hash_t hash = size ? hash_bytes(word, (Py_ssize_t)size) : 0;
    return hash == 0 ? 1 : hash == -1 ? -2 : (int64_t)hash;
}

enum { MAX_WORD = 24, MAX_RUN = 128 };           /* as in tokens.py */
enum { FIELDS, WORDS, HEADER_PHRASES, PHRASES }; /* as in tokens.py */

typedef unsigned char byte;

static byte to_words[256], to_runs[256];

/* Distinct words in the order in which they were found. places: a hash table of numbers of words, counted from 1. */
typedef struct {
    uint32_t *places, *times, *ends;
    int64_t *hashes;
    byte *spellings;
    size_t size, used, room, end;
} Found;

static int
found_open(Found *found, size_t size, size_t room)
{
    *found = (Found){.size = size, .room = room};
    found->places = calloc(size, sizeof *found->places);
    found->times = malloc(size / 2 * sizeof *found->times);
    found->ends = malloc(size / 2 * sizeof *found->ends);
    found->hashes = malloc(size / 2 * sizeof *found->hashes);
    found->spellings = malloc(room);
    return found->places && found->times && found->ends && found->hashes && found->spellings ? 0 : -1;
}

static void
found_close(Found *found)
{
    free(found->places);
    free(found->times);
    free(found->ends);
    free(found->hashes);
    free(found->spellings);
}

static size_t
place_of(const Found *found, int64_t hash)
{
    size_t at = (size_t)hash & (found->size - 1);
    while (found->places[at] != 0 && found->hashes[found->places[at] - 1] != hash)
        at = (at + 1) & (found->size - 1);
    return at;
}

static int
found_grow(Found *found, size_t size, size_t room)
{
    Found larger;
    if (room > UINT32_MAX || found_open(&larger, size, room) < 0) {
        if (room <= UINT32_MAX)
            found_close(&larger);
        return -1;
    }
    larger.used = found->used;
    larger.end = found->end;
    memcpy(larger.times, found->times, found->used * sizeof *found->times);
    memcpy(larger.ends, found->ends, found->used * sizeof *found->ends);
    memcpy(larger.hashes, found->hashes, found->used * sizeof *found->hashes);
    memcpy(larger.spellings, found->spellings, found->end);
    for (size_t i = 0; i < larger.used; i++)
        larger.places[place_of(&larger, larger.hashes[i])] = (uint32_t)i + 1;
    found_close(found);
    *found = larger;
    return 0;
}

static int
add(Found *found, const byte *word, size_t size)
{
    int64_t hash = key_of(word, size);
    if (found->used == found->size / 2 && found_grow(found, 2 * found->size, found->room) < 0)
        return -1;
    if (found->end + size > found->room && found_grow(found, found->size, 2 * (found->room + size)) < 0)
        return -1;
    size_t at = place_of(found, hash);
    if (found->places[at] != 0) {
        found->times[found->places[at] - 1]++;
        return 0;
    }
    memcpy(found->spellings + found->end, word, size);
    found->end += size;
    found->hashes[found->used] = hash;
    found->times[found->used] = 1;
    found->ends[found->used] = (uint32_t)found->end;
    found->places[at] = (uint32_t)++found->used;
    return 0;
}

/* Whether a character of a script without spaces begins here: U+3040-9FFF and U+AC00-D7AF, as tokens._CJK. */
static int
is_cjk(const byte *at, const byte *end)
{
    if (at[0] < 0xE3 || at[0] > 0xED || end - at < 3 || (at[1] & 0xC0) != 0x80 || (at[2] & 0xC0) != 0x80)
        return 0;
    unsigned character = (at[0] & 0xFu) << 12 | (at[1] & 0x3Fu) << 6 | (at[2] & 0x3Fu);
    return (character >= 0x3040 && character <= 0x9FFF) || (character >= 0xAC00 && character <= 0xD7AF);
}

/* As tokens.words: the next word, its size, 0 at the end. A long one becomes its first character and its length. */
static size_t
next_word(const byte **at, const byte *end, byte word[MAX_WORD + 32])
{
    const byte *here = *at;
    size_t size = 0;
    while (here < end && to_words[*here] == ' ')
        here++;
    for (int last = 0; !last && here < end && to_words[*here] != ' ';) {
        last = is_cjk(here, end);
        for (int left = last ? 3 : 1; left > 0; left--, here++, size++)
            if (size < MAX_WORD)
                word[size] = to_words[*here];
    }
    *at = here;
    if (size <= MAX_WORD)
        return size;
    size_t first = word[0] < 0x80 ? 1 : word[0] < 0xE0 ? 2 : word[0] < 0xF0 ? 3 : 4;
    return first + (size_t)sprintf((char *)word + first, "~%zu", size / 10);
}

/* As tokens._runs: the next run, its size, 0 at the end. A long one is cut between characters. */
static size_t
next_phrased(const byte **at, const byte *end, byte run[MAX_RUN + 1])
{
    const byte *here = *at;
    size_t size = 0;
    while (here < end && to_runs[*here] == ' ')
        here++;
    for (; here < end && to_runs[*here] != ' '; here++, size++)
        if (size <= MAX_RUN)
            run[size] = *here;
    *at = here;
    if (size <= MAX_RUN)
        return size;
    size = MAX_RUN;
    while (size > 0 && (run[size] & 0xC0) == 0x80)
        size--;
    return size;
}

static int
add_words(Found *found, const byte *text, size_t length)
{
    const byte *end = text + length;
    byte word[MAX_WORD + 32];
    size_t size;
    while ((size = next_word(&text, end, word)) > 0)
        if (add(found, word, size) < 0)
            return -1;
    return 0;
}

/* As tokens.header for one field: name, name:word, and name:word1 word2 for neighbours. */
static int
add_field(Found *found, const byte *name, size_t prefix, const byte *text, size_t length)
{
    const byte *end = text + length;
    byte word[MAX_WORD + 32];
    byte *token = malloc(prefix + 2 * sizeof word + 2), *last;
    if (token == NULL)
        return -1;
    memcpy(token, name, prefix);
    int failed = add(found, token, prefix);
    token[prefix++] = ':';
    last = token + prefix;
    for (size_t size, before = 0; !failed && (size = next_word(&text, end, word)) > 0; before = size) {
        if (before > 0) {
            last[before] = ' ';
            memcpy(last + before + 1, word, size);
            failed = add(found, token, prefix + before + 1 + size);
        }
        memcpy(last, word, size);
        failed = failed || add(found, token, prefix + size);
    }
    free(token);
    return failed ? -1 : 0;
}

/* As tokens.phrases for the header (marked is 1) or the text (0): runs, and pairs of neighbours. */
static int
add_phrases(Found *found, const byte *text, size_t length, size_t marked)
{
    const byte *end = text + length;
    byte token[2 * MAX_RUN + 2], run[MAX_RUN + 1], *last = token + marked;
    token[0] = '^';
    for (size_t size, before = 0; (size = next_phrased(&text, end, run)) > 0; before = size) {
        if (before > 0) {
            last[before] = ' ';
            memcpy(last + before + 1, run, size);
            if (add(found, token, marked + before + 1 + size) < 0)
                return -1;
        }
        memcpy(last, run, size);
        if (add(found, token, marked + size) < 0)
            return -1;
    }
    return 0;
}

static int
add_part(Found *found, int kind, PyObject *part)
{
    const char *name, *text;
    Py_ssize_t name_size, size;
    if (kind == FIELDS) {
        if (!PyTuple_Check(part)) {
            PyErr_SetString(PyExc_TypeError, "header fields are a tuple of (name, value)");
            return -1;
        }
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(part); i++) {
            PyObject *field = PyTuple_GET_ITEM(part, i);
            if (!PyTuple_Check(field)) {
                PyErr_SetString(PyExc_TypeError, "a header field is a tuple of name and value");
                return -1;
            }
            if (!PyArg_ParseTuple(field, "y#y#", &name, &name_size, &text, &size))
                return -1;
            if (add_field(found, (const byte *)name, (size_t)name_size, (const byte *)text, (size_t)size) < 0) {
                PyErr_NoMemory();
                return -1;
            }
        }
        return 0;
    }
    if (PyBytes_AsStringAndSize(part, (char **)&text, &size) < 0)
        return -1;
    int failed = kind == WORDS ? add_words(found, (const byte *)text, (size_t)size)
                               : add_phrases(found, (const byte *)text, (size_t)size, kind == HEADER_PHRASES);
    if (failed)
        PyErr_NoMemory();
    return failed;
}

PyDoc_STRVAR(find_doc,
"find(((kind, part), ...)) -> (spellings, ends, hashes, times)\n\n"
"The distinct words of all parts, one after the other, and for each where it ends (unsigned 32 bits), its hash (64\n"
"bits) and how often it occurs (unsigned 32 bits), in native order. A part is of one of the kinds of tokens.py.");

static PyObject *
compiled_find(PyObject *module, PyObject *parts)
{
    Found found;
    PyObject *all = NULL;
    if (!PyTuple_Check(parts)) {
        PyErr_SetString(PyExc_TypeError, "parts are a tuple of (kind, part)");
        return NULL;
    }
    if (found_open(&found, 2048, 16384) < 0) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parts); i++) {
        int kind;
        PyObject *pair = PyTuple_GET_ITEM(parts, i), *part;
        if (!PyTuple_Check(pair)) {
            PyErr_SetString(PyExc_TypeError, "a part is a tuple of its kind and itself");
            goto done;
        }
        if (!PyArg_ParseTuple(pair, "iO", &kind, &part) || add_part(&found, kind, part) < 0)
            goto done;
    }
    all = Py_BuildValue("(y#y#y#y#)", (char *)found.spellings, (Py_ssize_t)found.end,
                        (char *)found.ends, (Py_ssize_t)(found.used * sizeof *found.ends),
                        (char *)found.hashes, (Py_ssize_t)(found.used * sizeof *found.hashes),
                        (char *)found.times, (Py_ssize_t)(found.used * sizeof *found.times));
done:
    found_close(&found);
    return all;
}

PyDoc_STRVAR(slots_doc,
"slots(table, keys) -> slots\n\n"
"Where a table has these keys, as native 64-bit integers; -1 where it has not.");

static PyObject *
compiled_slots(PyObject *module, PyObject *args)
{
    PyObject *slots;
    Py_buffer keys;
    Table table;
    if (!PyArg_ParseTuple(args, "O&y*", to_table, &table, &keys))
        return NULL;
    const int64_t *key = keys.buf;
    size_t number = (size_t)keys.len / sizeof *key;
    slots = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(number * sizeof(int64_t)));
    if (slots != NULL) {
        int64_t *slot = (int64_t *)PyBytes_AS_STRING(slots);
        approach_first(&table, key, number);
        for (size_t i = 0; i < number; i++) {
            approach_next(&table, key, number, i);
            size_t at = slot_of(&table, key[i]);
            slot[i] = has(&table, at, key[i]) ? (int64_t)at : -1;
        }
    }
    table_close(&table);
    PyBuffer_Release(&keys);
    return slots;
}

PyDoc_STRVAR(insert_doc,
"insert(table, keys)\n\n"
"Give slots of a table to these keys, where they have none.");

static PyObject *
compiled_insert(PyObject *module, PyObject *args)
{
    Py_buffer keys;
    Table table;
    int failed = 0;
    if (!PyArg_ParseTuple(args, "O&y*", to_changed_table, &table, &keys))
        return NULL;
    const int64_t *key = keys.buf;
    size_t number = (size_t)keys.len / sizeof *key;
    approach_first(&table, key, number);
    for (size_t i = 0; i < number && !failed; i++) {
        approach_next(&table, key, number, i);
        size_t at = slot_of(&table, key[i]);
        if (at < table.size) {
            *key_at(&table, at) = key[i];
        } else {
            PyErr_SetString(PyExc_ValueError, "the table is full");
            failed = 1;
        }
    }
    table_close(&table);
    PyBuffer_Release(&keys);
    return failed ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(hashes_doc,
"hashes(lines) -> hashes\n\n"
"The hash of each line, as native 64-bit integers, never 0; the last one has no line end.");

static PyObject *
compiled_hashes(PyObject *module, PyObject *lines)
{
    const char *here, *end, *next;
    Py_ssize_t size, number = 1;
    if (PyBytes_AsStringAndSize(lines, (char **)&here, &size) < 0)
        return NULL;
    end = here + size;
    for (next = here; (next = memchr(next, '\n', (size_t)(end - next))) != NULL; next++)
        number++;
    PyObject *hashes = PyBytes_FromStringAndSize(NULL, number * (Py_ssize_t)sizeof(int64_t));
    if (hashes == NULL)
        return NULL;
    int64_t *hash = (int64_t *)PyBytes_AS_STRING(hashes);
    for (;; here = next + 1, hash++) {
        next = memchr(here, '\n', (size_t)(end - here));
        *hash = key_of(here, (size_t)((next ? next : end) - here));
        if (next == NULL)
            return hashes;
    }
}

PyDoc_STRVAR(counts_doc,
"counts(table, keys) -> counts\n\n"
"Of these keys, as doubles: those in ham, then those in spam.");

static PyObject *
compiled_counts(PyObject *module, PyObject *args)
{
    PyObject *found;
    Py_buffer keys;
    Table table;
    if (!PyArg_ParseTuple(args, "O&y*", to_table, &table, &keys))
        return NULL;
    const int64_t *key = keys.buf;
    size_t number = (size_t)keys.len / sizeof *key;
    found = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(2 * number * sizeof(double)));
    if (found != NULL) {
        double *ham = (double *)PyBytes_AS_STRING(found), *spam = ham + number;
        approach_first(&table, key, number);
        for (size_t i = 0; i < number; i++) {
            int64_t h, s;
            approach_next(&table, key, number, i);
            both_of(&table, key[i], &h, &s);
            ham[i] = (double)h;
            spam[i] = (double)s;
        }
    }
    table_close(&table);
    PyBuffer_Release(&keys);
    return found;
}

static PyMethodDef methods[] = {
    {"find", compiled_find, METH_O, find_doc},
    {"slots", compiled_slots, METH_VARARGS, slots_doc},
    {"counts", compiled_counts, METH_VARARGS, counts_doc},
    {"insert", compiled_insert, METH_VARARGS, insert_doc},
    {"hashes", compiled_hashes, METH_O, hashes_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_tokens", "The words of a message, and their places in a table of counts.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__tokens(void)
{
    for (int i = 0; i < 256; i++) {
        int kept = i >= 0x80 || (i >= '0' && i <= '9') || (i >= 'a' && i <= 'z') || (i && strchr("'$_-", i));
        to_words[i] = (byte)(kept ? i : i >= 'A' && i <= 'Z' ? i + 'a' - 'A' : ' ');
        to_runs[i] = (byte)(i >= 33 && i != 127 ? i : ' ');
    }
#if PY_VERSION_HEX < 0x030E0000
    hash_bytes = PyHash_GetFuncDef()->hash;
#endif
    PyObject *module = PyModule_Create(&definition);
    if (module && PyModule_AddIntConstant(module, "SOURCE", SOURCE) < 0) { /* a checksum: see build.py */
        Py_CLEAR(module);
    }
    return module;
}
