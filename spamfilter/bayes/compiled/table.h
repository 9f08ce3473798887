/* The table of HashedTable (spamfilter/bayes/count_table.py): an array of 64-bit numbers of shape
 * (buckets, BUCKET, 2 or 3), a row for each slot: a key or 0, and its counts in ham and in spam, as two of 32 bits in one
 * number, or as two numbers. A key is in the first slot, from its bucket on, that was free when it was inserted.
 *
 * Guarantee: no slot outside of a table is read, whatever is in it; an array of another shape is a ValueError, and one
 * that cannot be read or changed as it should be is a TypeError or a BufferError.
 */
#ifndef SPAMFILTER_TABLE_H
#define SPAMFILTER_TABLE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

enum { BUCKET = 4 };
enum { AHEAD = 48 }; /* keys whose buckets are fetched ahead from memory; 20 are as good where memory is fast */

/* GCC takes a function that only prefetches for one without effect and leaves its calls out, unless it is inlined first;
 * tests/bayes/test_token_arrays.py checks that the instructions are there. */
#define INLINED_FIRST inline __attribute__((always_inline))

typedef struct {
    Py_buffer buffer;
    int64_t *slots;
    size_t size, width; /* slots, and numbers of each */
} Table;

/* 0, or -1 with an exception, and then there is nothing to close. flags: PyBUF_WRITABLE if it will be changed. */
static inline int
table_open(Table *table, PyObject *array, int flags)
{
    if (PyObject_GetBuffer(array, &table->buffer, PyBUF_ND | flags) < 0)
        return -1;
    const Py_ssize_t *shape = table->buffer.shape;
    if (table->buffer.ndim != 3 || table->buffer.itemsize != sizeof(int64_t) || shape[0] < 1 || shape[0] > UINT32_MAX
        || shape[1] != BUCKET || (shape[2] != 2 && shape[2] != 3)) {
        PyErr_SetString(PyExc_ValueError, "a table has whole buckets, and one at least");
        PyBuffer_Release(&table->buffer);
        return -1;
    }
    table->slots = table->buffer.buf;
    table->size = (size_t)shape[0] * BUCKET;
    table->width = (size_t)shape[2];
    return 0;
}

static inline void
table_close(Table *table)
{
    PyBuffer_Release(&table->buffer);
}

/* Converters for "O&" of PyArg_ParseTuple: a table to be read, and one to be changed. */
static int
to_table_with(int flags, PyObject *array, Table *table)
{
    if (array == NULL) {
        table_close(table);
        return 1;
    }
    return table_open(table, array, flags) < 0 ? 0 : Py_CLEANUP_SUPPORTED;
}

static inline int
to_table(PyObject *array, void *table)
{
    return to_table_with(0, array, table);
}

static inline int
to_changed_table(PyObject *array, void *table)
{
    return to_table_with(PyBUF_WRITABLE, array, table);
}

static inline int64_t *
key_at(const Table *table, size_t slot)
{
    return table->slots + slot * table->width;
}

/* The first slot of a key's bucket, as HashedTable._bucket: the upper half of its hash as a fraction of the table. */
static inline size_t
bucket_of(const Table *table, int64_t key)
{
    return (size_t)(((uint64_t)key >> 32) * (table->size / BUCKET) >> 32) * BUCKET;
}

/* Prefetch the buckets of the first of these keys, before a loop over them. */
static INLINED_FIRST void
approach_first(const Table *table, const int64_t *keys, size_t number)
{
    for (size_t i = 0; i < AHEAD && i < number; i++)
        __builtin_prefetch(key_at(table, bucket_of(table, keys[i])));
}

/* The same for one of the next keys, while the loop is at key i. */
static INLINED_FIRST void
approach_next(const Table *table, const int64_t *keys, size_t number, size_t i)
{
    if (i + AHEAD < number)
        __builtin_prefetch(key_at(table, bucket_of(table, keys[i + AHEAD])));
}

/* Which slots of a bucket have a key, a bit for each. */
static inline unsigned
those_with(const Table *table, size_t bucket, int64_t key)
{
    unsigned found = 0;
#pragma GCC unroll 4
    for (size_t i = 0; i < BUCKET; i++)
        found += (unsigned)(*key_at(table, bucket + i) == key) << i;
    return found;
}

/* Where a key is, or else the free slot that ends the search for it; `size` if the table is full. All slots of a bucket
 * are compared: a loop that stops at the right one takes longer, since its branch cannot be predicted. */
static inline size_t
slot_of(const Table *table, int64_t key)
{
    size_t at = bucket_of(table, key);
    for (size_t looked = 0; looked < table->size; looked += BUCKET) {
        unsigned found = those_with(table, at, key);
        if (found == 0)
            found = those_with(table, at, 0);
        if (found != 0)
            return at + (size_t)__builtin_ctz(found);
        at = at + BUCKET == table->size ? 0 : at + BUCKET;
    }
    return table->size;
}

/* Whether a slot found for a key is this key's, and not a free one or none. */
static inline int
has(const Table *table, size_t slot, int64_t key)
{
    return slot < table->size && *key_at(table, slot) == key;
}

static inline int64_t
count_of(const Table *table, size_t slot, int column)
{
    const int64_t *counts = key_at(table, slot) + 1;
    return table->width == 3 ? counts[column] : ((const int32_t *)counts)[column];
}

/* The counts of a key in ham and in spam, 0 if it has none. */
static inline void
both_of(const Table *table, int64_t key, int64_t *ham, int64_t *spam)
{
    size_t at = slot_of(table, key);
    int known = has(table, at, key);
    *ham = known ? count_of(table, at, 0) : 0;
    *spam = known ? count_of(table, at, 1) : 0;
}

#endif
