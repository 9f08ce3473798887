/* The arithmetic of the default likelihoods for each word of a message: see spamfilter/bayes/likelihoods/.
 *
 * Logarithms are computed by numpy, since those of C libraries differ from them in the last bit. All else is arithmetic
 * that IEEE 754 defines to the last bit, in the order of the Python side (compiled without contractions to fused
 * operations). tests/bayes/test_scores.py compares both sides.
 *
 * Guarantee: reads nothing beyond the objects it is given, whatever is in them; a wrong type is a TypeError, sizes that
 * do not fit are a ValueError.
 */
#include "arithmetic.h"
#include "table.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 }; /* the largest number of loudest words that `loud` looks for */

/* As total_of, with an exception where that is -1. */
static int
sum_of(const double *values, size_t number, double *sum)
{
    if (total_of(values, number, sum) == 0)
        return 0;
    PyErr_SetString(PyExc_ValueError, "only finite numbers can be summed");
    return -1;
}

PyDoc_STRVAR(total_doc,
"total(doubles) -> float\n\n"
"Their sum, rounded once, as math.fsum gives it. They must be finite, and too few and small to overflow.");

static PyObject *
scores_total(PyObject *module, PyObject *values)
{
    Py_buffer buffer;
    double sum;
    if (PyObject_GetBuffer(values, &buffer, PyBUF_SIMPLE) < 0)
        return NULL;
    int failed = sum_of(buffer.buf, (size_t)buffer.len / sizeof(double), &sum);
    PyBuffer_Release(&buffer);
    return failed ? NULL : PyFloat_FromDouble(sum);
}

PyDoc_STRVAR(soft_doc,
"soft(table, keys, logarithms, scale, purity) -> (sum, shares, counts) or None\n\n"
"As Soft.judge makes them of a message with these words: the sum of the shares, and as doubles one share for each word,\n"
"and its counts, those in ham, then those in spam. logarithms: of counts and the prior, for counts from 0 on; None if a\n"
"count is beyond them.");

static PyObject *
scores_soft(PyObject *module, PyObject *args)
{
    Py_buffer keys, logarithms;
    double scale, purity, sum;
    PyObject *found = NULL, *shares = NULL, *numbers = NULL;
    Table table;
    if (!PyArg_ParseTuple(args, "O&y*y*dd", to_table, &table, &keys, &logarithms, &scale, &purity))
        return NULL;
    const int64_t *key = keys.buf;
    const double *logarithm = logarithms.buf;
    size_t words = (size_t)keys.len / sizeof *key, known = (size_t)logarithms.len / sizeof *logarithm;
    shares = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(words * sizeof(double)));
    numbers = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(2 * words * sizeof(double)));
    if (shares == NULL || numbers == NULL)
        goto done;
    double *share = (double *)PyBytes_AS_STRING(shares), *ham = (double *)PyBytes_AS_STRING(numbers);
    double *spam = ham + words, root = sqrt((double)words);
    approach_first(&table, key, words);
    for (size_t i = 0; i < words; i++) {
        int64_t h, s;
        approach_next(&table, key, words, i);
        both_of(&table, key[i], &h, &s);
        if ((uint64_t)h >= known || (uint64_t)s >= known) {
            found = Py_NewRef(Py_None);
            goto done;
        }
        ham[i] = (double)h;
        spam[i] = (double)s;
        share[i] = soft_share(logarithm, h, s, scale, purity) / root;
    }
    if (sum_of(share, words, &sum) == 0)
        found = Py_BuildValue("(dOO)", sum, shares, numbers);
done:
    Py_XDECREF(shares);
    Py_XDECREF(numbers);
    table_close(&table);
    PyBuffer_Release(&keys);
    PyBuffer_Release(&logarithms);
    return found;
}

PyDoc_STRVAR(eddc_doc,
"eddc(counts, ham_learnt, spam_learnt, equal, factor, weight) -> chances\n\n"
"Of which Eddc.shares takes the logarithms: those of all words in ham, then those in spam. The same in both of a word\n"
"that says nothing.");

static PyObject *
scores_eddc(PyObject *module, PyObject *args)
{
    Py_buffer counts;
    double ham_learnt, spam_learnt, equal, factor, weight;
    if (!PyArg_ParseTuple(args, "y*ddddd", &counts, &ham_learnt, &spam_learnt, &equal, &factor, &weight))
        return NULL;
    size_t words = (size_t)counts.len / (2 * sizeof(double));
    PyObject *chances = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(2 * words * sizeof(double)));
    if (chances != NULL) {
        const double *ham = counts.buf, *spam = ham + words, most = fmax(ham_learnt, spam_learnt);
        double *of_ham = (double *)PyBytes_AS_STRING(chances), *of_spam = of_ham + words;
        for (size_t i = 0; i < words; i++) {
            double in_ham = ham[i] / ham_learnt, in_spam = spam[i] / spam_learnt;
            of_ham[i] = of_spam[i] = 0.5;
            if (!(fabs(in_spam - in_ham) >= equal))
                continue;
            double h = floor(ham[i] * most / ham_learnt), s = floor(spam[i] * most / spam_learnt);
            double n = ham[i] + spam[i];
            double x = ((s - h) * (s - h) - 0.25 / n) / ((s + h) * (s + h));
            double c = factor * x * x / (1 + 8 / (n * weight));
            of_ham[i] = fmax(0.5 + c * (in_ham - 0.5), DBL_MIN);
            of_spam[i] = fmax(0.5 + c * (in_spam - 0.5), DBL_MIN);
        }
    }
    PyBuffer_Release(&counts);
    return chances;
}

/* Whether a word begins with another character; a word is where the one before it ends. */
static int
other(const unsigned char *text, Py_ssize_t size, const uint32_t *end, size_t word, unsigned char character)
{
    uint32_t start = word ? end[word - 1] : 0;
    return start >= size || text[start] != character;
}

PyDoc_STRVAR(heard_doc,
"heard(logarithms, scale, constant, spellings, ends, character, limit, other_limit) -> (own, heard, shares)\n\n"
"As Eddc.judge makes them of the logarithms of the chances of all words, those in ham, then those in spam: the log-odds,\n"
"those that are heard, and the share of each word in them, as doubles. Words that begin with this character say `limit`\n"
"together at most, the others `other_limit`.");

static PyObject *
scores_heard(PyObject *module, PyObject *args)
{
    Py_buffer logarithms, spellings, ends;
    double scale, constant, most[2], own, sum;
    unsigned char character;
    PyObject *found = NULL, *shares = NULL;
    double *parted = NULL;
    if (!PyArg_ParseTuple(args, "y*ddy*y*bdd", &logarithms, &scale, &constant, &spellings, &ends, &character, most,
                          most + 1))
        return NULL;
    size_t words = (size_t)logarithms.len / (2 * sizeof(double)), numbers[2] = {0, 0};
    const double *in_ham = logarithms.buf, *in_spam = in_ham + words;
    const uint32_t *end = ends.buf;
    const unsigned char *text = spellings.buf;
    if (ends.len != (Py_ssize_t)(words * sizeof *end)) {
        PyErr_SetString(PyExc_ValueError, "each word has two logarithms and an end");
        goto done;
    }
    /* The parts from both ends of one row; the order of numbers changes nothing in their exact sum. */
    parted = malloc((words + 1) * sizeof *parted);
    shares = parted ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(words * sizeof *parted)) : PyErr_NoMemory();
    if (shares == NULL)
        goto done;
    double *share = (double *)PyBytes_AS_STRING(shares);
    for (size_t i = 0; i < words; i++) {
        share[i] = scale * (in_spam[i] - in_ham[i]);
        parted[other(text, spellings.len, end, i, character) ? words - ++numbers[1] : numbers[0]++] = share[i];
    }
    if (sum_of(share, words, &own) < 0)
        goto done;
    sum = own;
    int loud = 0;
    for (int part = 0; part < 2; part++) {
        double said;
        if (sum_of(part ? parted + numbers[0] : parted, numbers[part], &said) < 0)
            goto done;
        loud |= fabs(said) > most[part];
        most[part] = fabs(said) > most[part] ? most[part] / fabs(said) : 1.0;
    }
    if (loud) {
        for (size_t i = 0; i < words; i++)
            share[i] *= most[other(text, spellings.len, end, i, character)];
        if (sum_of(share, words, &sum) < 0)
            goto done;
    }
    found = Py_BuildValue("(ddO)", own + constant, sum + constant, shares);
done:
    free(parted);
    Py_XDECREF(shares);
    PyBuffer_Release(&logarithms);
    PyBuffer_Release(&spellings);
    PyBuffer_Release(&ends);
    return found;
}

/* The row of one word: see loud_doc. */
static PyObject *
loud_row(PyObject *name, double says, double unit, PyObject *tokens, Py_ssize_t at, double ham, double spam)
{
    PyObject *token = PySequence_GetItem(tokens, at);
    return token ? Py_BuildValue("(dONddd)", -fabs(says), name, token, ham / unit, spam / unit, says) : NULL;
}

PyDoc_STRVAR(loud_doc,
"loud(((name, weight, unit, tokens, counts, shares), ...), most)\n"
"    -> [(-abs(says), name, token, ham, spam, says), ...]\n\n"
"The words of which the `most` weighted shares are that are furthest from 0, and all that are as far as the last of\n"
"them, but for those that are 0: what a word says is its weighted share, its counts are in units. counts, shares: as\n"
"doubles, counts those in ham, then those in spam.");

static PyObject *
scores_loud(PyObject *module, PyObject *args)
{
    PyObject *parts, *found = NULL;
    int most;
    if (!PyArg_ParseTuple(args, "O!i", &PyTuple_Type, &parts, &most))
        return NULL;
    if (most < 1 || most > MOST)
        return PyErr_Format(PyExc_ValueError, "from 1 to %d can be looked for", MOST);
    double top[MOST] = {0}; /* descending */
    /* First the last of the loudest, then all that are as loud. */
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1 && (found = PyList_New(0)) == NULL)
            return NULL;
        for (Py_ssize_t part = 0; part < PyTuple_GET_SIZE(parts); part++) {
            Py_buffer counts, shares;
            double weight, unit;
            PyObject *one = PyTuple_GET_ITEM(parts, part), *name, *tokens;
            if (!PyTuple_Check(one)) {
                PyErr_SetString(PyExc_TypeError, "a part is a tuple of a voice, its words and what they say");
                goto failed;
            }
            if (!PyArg_ParseTuple(one, "OddOy*y*", &name, &weight, &unit, &tokens, &counts, &shares))
                goto failed;
            const double *share = shares.buf, *ham = counts.buf;
            Py_ssize_t words = shares.len / (Py_ssize_t)sizeof(double);
            int wrong = counts.len != 2 * shares.len;
            if (wrong)
                PyErr_SetString(PyExc_ValueError, "each word has a share and two counts");
            for (Py_ssize_t i = 0; i < words && !wrong; i++) {
                double says = weight * share[i], loud = fabs(says);
                if (pass == 0 && loud > top[most - 1]) {
                    int at = most - 1;
                    for (; at > 0 && top[at - 1] < loud; at--)
                        top[at] = top[at - 1];
                    top[at] = loud;
                } else if (pass == 1 && loud > 0 && loud >= top[most - 1]) {
                    PyObject *row = loud_row(name, says, unit, tokens, i, ham[i], ham[words + i]);
                    wrong = row == NULL || PyList_Append(found, row) < 0;
                    Py_XDECREF(row);
                }
            }
            PyBuffer_Release(&counts);
            PyBuffer_Release(&shares);
            if (wrong)
                goto failed;
        }
    }
    return found;
failed:
    Py_XDECREF(found);
    return NULL;
}

static PyMethodDef methods[] = {
    {"total", scores_total, METH_O, total_doc},
    {"soft", scores_soft, METH_VARARGS, soft_doc},
    {"eddc", scores_eddc, METH_VARARGS, eddc_doc},
    {"heard", scores_heard, METH_VARARGS, heard_doc},
    {"loud", scores_loud, METH_VARARGS, loud_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_scores", "The scores of a message's words.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__scores(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module && PyModule_AddIntConstant(module, "SOURCE", SOURCE) < 0) { /* a checksum: see build.py */
        Py_CLEAR(module);
    }
    return module;
}
