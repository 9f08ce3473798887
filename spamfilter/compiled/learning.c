/* What learning does for each word of a message: its count in a table of spamfilter/words.py, and the rows that say so
 * in the store. And bulk training by the soft rule.
 *
 * tests/test_learning.py holds it together with what Python does.
 *
 * Guarantee: reads and writes nothing beyond the objects it is given, whatever is in them; a wrong type is a TypeError,
 * sizes that do not fit are a ValueError.
 */
#include "arithmetic.h"
#include "table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Give a free slot to a key that counts nothing. */
static void
claim(const Table *table, size_t slot, int64_t key)
{
    *key_at(table, slot) = key;
    set_count(table, slot, 0, 0);
    set_count(table, slot, 1, 0);
}

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
            claim(&table, at, key[i]);
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

/* What one voice sees of a message. */
typedef struct {
    const char *name, *text;
    Py_ssize_t name_size, text_size;
    Py_buffer ends, times;
} Sight;

static size_t
words_of(const Sight *sight)
{
    return (size_t)sight->ends.len / sizeof(uint32_t);
}

/* Of [name,words,{"place":occurrences}]: two numbers below 2^64, two quotation marks, a colon and a comma for each word
 * that is repeated, and one number and six marks besides. */
static size_t
room_for_head(const Sight *sight)
{
    const uint32_t *time = sight->times.buf;
    size_t repeated = 0;
    for (size_t i = 0; i < words_of(sight); i++)
        repeated += time[i] != 1;
    return (size_t)sight->name_size + 32 + repeated * 44;
}

static char *
write_head(char *here, const Sight *sight)
{
    const uint32_t *time = sight->times.buf;
    *here++ = '[';
    memcpy(here, sight->name, (size_t)sight->name_size);
    here += sight->name_size;
    *here++ = ',';
    here = decimal(here, words_of(sight));
    *here++ = ',';
    *here++ = '{';
    for (size_t i = 0; i < words_of(sight); i++) {
        if (time[i] == 1)
            continue;
        *here++ = '"';
        here = decimal(here, i);
        *here++ = '"';
        *here++ = ':';
        here = decimal(here, time[i]);
        *here++ = ',';
    }
    here -= here[-1] == ',';
    *here++ = '}';
    *here++ = ']';
    return here;
}

/* The words, each with a line end before it; NULL where they do not end in their text. */
static char *
write_lines(char *here, const Sight *sight)
{
    const uint32_t *end = sight->ends.buf;
    size_t start = 0;
    for (size_t i = 0; i < words_of(sight); start = end[i++]) {
        if (end[i] < start || end[i] > (size_t)sight->text_size)
            return NULL;
        *here++ = '\n';
        memcpy(here, sight->text + start, end[i] - start);
        here += end[i] - start;
    }
    return start == (size_t)sight->text_size ? here : NULL;
}

static PyObject *
lines_of(const Sight *sights, Py_ssize_t number)
{
    size_t room = 3;
    for (Py_ssize_t i = 0; i < number; i++)
        room += room_for_head(sights + i) + (size_t)sights[i].text_size + words_of(sights + i);
    PyObject *lines = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)room);
    if (lines == NULL)
        return NULL;
    char *start = PyBytes_AS_STRING(lines), *here = start;
    *here++ = '[';
    for (Py_ssize_t i = 0; i < number; i++) {
        here = write_head(here, sights + i);
        *here++ = ',';
    }
    here -= here[-1] == ',';
    *here++ = ']';
    char *head = here;
    for (Py_ssize_t i = 0; here != NULL && i < number; i++)
        here = write_lines(here, sights + i);
    if (here == NULL) {
        PyErr_SetString(PyExc_ValueError, "a word ends where no text is");
        Py_DECREF(lines);
        return NULL;
    }
    if (here == head)
        *here++ = '\n';
    _PyBytes_Resize(&lines, here - start);
    return lines;
}

PyDoc_STRVAR(lines_doc,
"lines(voices) -> lines or None\n\n"
"What each voice sees of a message, (name, (text, ends, hashes, times)): a line of JSON that has for each its name, which\n"
"is given as JSON, the number of its words, and place -> occurrences where they are not one; below it the words of all\n"
"of them on a line each, the last one without an end. None if a word has a line end in it.");

static PyObject *
learning_lines(PyObject *module, PyObject *voices)
{
    voices = PySequence_Tuple(voices);
    if (voices == NULL)
        return NULL;
    const Py_ssize_t number = PyTuple_GET_SIZE(voices);
    Py_ssize_t held = 0;
    PyObject *lines = NULL;
    int whole = 1;
    Sight *sights = malloc((size_t)(number + 1) * sizeof *sights);
    if (sights == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    while (held < number) {
        PyObject *voice = PyTuple_GET_ITEM(voices, held), *seen, *hashes;
        Sight *sight = sights + held;
        if (!PyTuple_Check(voice)) {
            PyErr_SetString(PyExc_TypeError, "a voice is a tuple");
            goto done;
        }
        if (!PyArg_ParseTuple(voice, "y#O!", &sight->name, &sight->name_size, &PyTuple_Type, &seen)
            || !PyArg_ParseTuple(seen, "y#y*Oy*", &sight->text, &sight->text_size, &sight->ends, &hashes, &sight->times))
            goto done;
        held++;
        if (sight->ends.len != sight->times.len || sight->ends.len % (Py_ssize_t)sizeof(uint32_t) != 0) {
            PyErr_SetString(PyExc_ValueError, "each word has an end and its occurrences");
            goto done;
        }
        whole &= memchr(sight->text, '\n', (size_t)sight->text_size) == NULL;
    }
    lines = whole ? lines_of(sights, number) : Py_NewRef(Py_None);
done:
    while (held > 0) {
        PyBuffer_Release(&sights[--held].ends);
        PyBuffer_Release(&sights[held].times);
    }
    free(sights);
    Py_DECREF(voices);
    return lines;
}

PyDoc_STRVAR(unlined_doc,
"unlined(lines, first, number) -> (text, ends)\n\n"
"So many lines from the one with number `first` on, as words: without line ends, and where each ends (unsigned 32 bits).");

static PyObject *
learning_unlined(PyObject *module, PyObject *args)
{
    const char *here, *end, *next;
    Py_ssize_t size, first, number;
    PyObject *text = NULL, *ends = NULL, *found = NULL;
    if (!PyArg_ParseTuple(args, "y#nn", &here, &size, &first, &number))
        return NULL;
    end = here + size;
    if (first < 0 || number < 0 || number > size + 1 || size > UINT32_MAX)
        here = NULL;
    for (; here != NULL && number > 0 && first > 0; first--)
        here = (next = memchr(here, '\n', (size_t)(end - here))) ? next + 1 : NULL;
    text = PyBytes_FromStringAndSize(NULL, here ? end - here : 0);
    ends = PyBytes_FromStringAndSize(NULL, here ? number * (Py_ssize_t)sizeof(uint32_t) : 0);
    if (text == NULL || ends == NULL)
        goto done;
    char *start = PyBytes_AS_STRING(text), *word = start;
    uint32_t *ended = (uint32_t *)PyBytes_AS_STRING(ends);
    for (Py_ssize_t i = 0; here != NULL && i < number; i++) {
        next = memchr(here, '\n', (size_t)(end - here));
        size_t length = (size_t)((next ? next : end) - here);
        memcpy(word, here, length);
        word += length;
        ended[i] = (uint32_t)(word - start);
        here = next ? next + 1 : i + 1 < number ? NULL : end;
    }
    if (here == NULL)
        PyErr_SetString(PyExc_ValueError, "there are not so many lines");
    else if (_PyBytes_Resize(&text, word - start) == 0)
        found = PyTuple_Pack(2, text, ends);
done:
    Py_XDECREF(text);
    Py_XDECREF(ends);
    return found;
}

/* A message of bulk training: the keys of its words, its label as a column, and where it says what it has added; odds and
 * grown, if not NULL, where its log-odds go, and the number of words that nobody had before. */
typedef struct {
    const int64_t *keys;
    size_t number;
    int column;
    int64_t *amount;
    double *odds;
    int64_t *grown;
} Lesson;

/* The soft rule as Soft has it. logarithms: of counts and the prior, for small counts from 0 on. most: what a message may
 * add in all. least: log-odds for the label above which it learns nothing, however they were rounded. */
typedef struct {
    const double *logarithms;
    size_t known;
    double scale, purity, rate, unit, least;
    long long most;
} Rule;

/* What the words of a message say, and their slots. */
typedef struct {
    double *shares;
    size_t *slots;
} Scratch;

enum { DONE, ANOTHER_WAY, NO_ROOM };

/* Look at a message, and learn it as far as it is judged badly. room: free slots of the table that may be used.
 * ANOTHER_WAY: that is for others to do, and nothing is changed. NO_ROOM: the table has less than that. */
static int
look(const Table *table, const Lesson *lesson, const Rule *rule, const Scratch *scratch, Py_ssize_t *room)
{
    const int64_t before = *lesson->amount, largest = table->width == 2 ? INT32_MAX : INT64_MAX / 2;
    const double root = sqrt((double)lesson->number);
    double sum = 0, own;
    Py_ssize_t unknown = 0;
    if (before < 0)
        return ANOTHER_WAY;
    if (before >= rule->most)
        return DONE;
    approach_first(table, lesson->keys, lesson->number);
    for (size_t i = 0; i < lesson->number; i++) {
        int64_t key = lesson->keys[i], ham = 0, spam = 0;
        approach_next(table, lesson->keys, lesson->number, i);
        size_t at = slot_of(table, key);
        if (has(table, at, key)) {
            ham = count_of(table, at, 0);
            spam = count_of(table, at, 1);
        } else {
            unknown++;
        }
        if ((uint64_t)ham >= rule->known || (uint64_t)spam >= rule->known || key == 0)
            return ANOTHER_WAY;
        scratch->slots[i] = at;
        scratch->shares[i] = ham == spam ? 0 : soft_share(rule->logarithms, ham, spam, rule->scale, rule->purity);
        sum += scratch->shares[i];
    }
    if (lesson->odds == NULL && (lesson->column ? sum : -sum) > rule->least * root)
        return DONE;
    for (size_t i = 0; i < lesson->number; i++)
        scratch->shares[i] /= root;
    if (total_of(scratch->shares, lesson->number, &own) < 0)
        return ANOTHER_WAY;
    double wrong = 1 / (1 + exp(fmin(lesson->column ? own : -own, 700)));
    double learns = fmin(floor(rule->unit * fmin(1, rule->rate * wrong) + 0.5), (double)(rule->most - before));
    if (learns > 0 && (learns > INT32_MAX || unknown > *room))
        return ANOTHER_WAY;
    int64_t more = learns > 0 ? (int64_t)learns : 0, grown = 0;
    for (size_t i = 0; more > 0 && i < lesson->number; i++)
        if (has(table, scratch->slots[i], lesson->keys[i])
            && count_of(table, scratch->slots[i], lesson->column) > largest - more)
            return ANOTHER_WAY;
    for (size_t i = 0; more > 0 && i < lesson->number; i++) {
        size_t at = scratch->slots[i];
        if (!has(table, at, lesson->keys[i])) {
            at = slot_of(table, lesson->keys[i]); /* another word may have taken the slot meanwhile */
            if (at == table->size)
                return NO_ROOM;
            claim(table, at, lesson->keys[i]);
        }
        int64_t count = count_of(table, at, lesson->column);
        grown += count == 0 && count_of(table, at, !lesson->column) == 0;
        set_count(table, at, lesson->column, count + more);
    }
    *room -= more > 0 ? unknown : 0;
    *lesson->amount = before + more;
    if (lesson->odds != NULL) {
        *lesson->odds = own;
        *lesson->grown = grown;
    }
    return DONE;
}

PyDoc_STRVAR(learn_doc,
"learn(table, messages, labels, (amounts, places), start, (logarithms, scale, purity, rate, unit, most, least), room,\n"
"      odds, grown) -> (number, used)\n\n"
"Learn messages by the soft rule, one after the other, as far as they are judged badly: from number `start` on, each the\n"
"keys of its words, each named once, a label (a byte: 0 ham, 1 spam) and its place among the amounts that were added\n"
"before (both 64 bits). Counts and amounts grow; other threads may run. logarithms: of counts and the prior, for small\n"
"counts from 0 on; most: what one may add in all; least: log-odds for its label above which one learns nothing, however\n"
"they were rounded. room: free slots of the table that may be used. odds: where the log-odds of each go, as Soft.judge\n"
"has them, and grown: the number of its words that counted nothing before (64 bits each); both empty if nobody asks.\n"
"Returns the number of the first message that is to be learnt in another way, which has changed nothing, or how many\n"
"they are; and how many slots were used.");

static PyObject *
learning_learn(PyObject *module, PyObject *args)
{
    Py_buffer labels, amounts, places, logarithms, odds, grown, *keys = NULL;
    PyObject *messages, *found = NULL;
    Py_ssize_t start, room, held = 0;
    Rule rule;
    Scratch scratch = {0};
    Table table;
    if (!PyArg_ParseTuple(args, "O&O!y*(w*y*)n(y*ddddLd)nw*w*", to_changed_table, &table, &PyList_Type, &messages, &labels,
                          &amounts, &places, &start, &logarithms, &rule.scale, &rule.purity, &rule.rate, &rule.unit,
                          &rule.most, &rule.least, &room, &odds, &grown))
        return NULL;
    rule.logarithms = logarithms.buf;
    rule.known = (size_t)logarithms.len / sizeof(double);
    messages = PyList_AsTuple(messages); /* which nobody shortens while we look at it */
    const Py_ssize_t number = messages ? PyTuple_GET_SIZE(messages) : 0, asked = odds.len / (Py_ssize_t)sizeof(double);
    const int64_t *place = places.buf;
    int fits = start >= 0 && number <= labels.len && number <= places.len / (Py_ssize_t)sizeof *place
               && grown.len == odds.len && (asked == 0 || asked >= number);
    for (Py_ssize_t i = 0; fits && i < number; i++)
        fits = place[i] >= 0 && place[i] < amounts.len / (Py_ssize_t)sizeof(int64_t);
    if (messages == NULL)
        goto done;
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "each message has its keys, its label and its amount");
        goto done;
    }
    keys = malloc((size_t)(number + 1) * sizeof *keys);
    size_t longest = 0;
    for (; keys != NULL && held < number; held++) {
        if (PyObject_GetBuffer(PyTuple_GET_ITEM(messages, held), keys + held, PyBUF_SIMPLE) < 0)
            goto done;
        size_t words = (size_t)keys[held].len / sizeof(int64_t);
        longest = words > longest ? words : longest;
    }
    scratch.shares = malloc((longest + 1) * sizeof *scratch.shares);
    scratch.slots = malloc((longest + 1) * sizeof *scratch.slots);
    if (keys == NULL || scratch.shares == NULL || scratch.slots == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    const Py_ssize_t free_slots = room;
    int looked = DONE;
    Py_BEGIN_ALLOW_THREADS
    while (looked == DONE && start < number) {
        Lesson lesson = {keys[start].buf, (size_t)keys[start].len / sizeof(int64_t), ((const char *)labels.buf)[start] != 0,
                         (int64_t *)amounts.buf + place[start], asked ? (double *)odds.buf + start : NULL,
                         asked ? (int64_t *)grown.buf + start : NULL};
        looked = look(&table, &lesson, &rule, &scratch, &room);
        start += looked == DONE;
    }
    Py_END_ALLOW_THREADS
    if (looked == NO_ROOM)
        PyErr_SetString(PyExc_ValueError, "a table has the room that it is said to have");
    else
        found = Py_BuildValue("(nn)", start, free_slots - room);
done:
    while (held > 0)
        PyBuffer_Release(keys + --held);
    free(keys);
    free(scratch.shares);
    free(scratch.slots);
    Py_XDECREF(messages);
    table_close(&table);
    PyBuffer_Release(&labels);
    PyBuffer_Release(&amounts);
    PyBuffer_Release(&places);
    PyBuffer_Release(&logarithms);
    PyBuffer_Release(&odds);
    PyBuffer_Release(&grown);
    return found;
}

static PyMethodDef methods[] = {
    {"change", learning_change, METH_VARARGS, change_doc},
    {"rows", learning_rows, METH_VARARGS, rows_doc},
    {"lines", learning_lines, METH_O, lines_doc},
    {"unlined", learning_unlined, METH_VARARGS, unlined_doc},
    {"learn", learning_learn, METH_VARARGS, learn_doc},
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
