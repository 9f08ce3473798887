/* A table of counts as Hashed of spamfilter/words.py has it: buckets of 8 slots, each a key or 0, and of each slot two
 * counts of 32 or 64 bits. A key is in the first slot from its bucket on that was free when it came.
 *
 * Guarantee: no slot is looked at that a table does not have, whatever is in it; sizes that do not fit are a ValueError.
 */
#ifndef SPAMFILTER_TABLE_H
#define SPAMFILTER_TABLE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

enum { BUCKET = 8 };
enum { AHEAD = 16 }; /* keys whose buckets are on their way from memory; 8 and 32 take a fifth longer */

typedef struct {
    int64_t *keys;
    size_t size;
    void *counts; /* or NULL */
    int wide;
} Table;

/* 0, or -1 with an exception. counts: NULL if nobody asks for them. */
static inline int
table_of(Table *table, const Py_buffer *keys, const Py_buffer *counts)
{
    size_t size = (size_t)keys->len / sizeof(int64_t);
    *table = (Table){.keys = keys->buf, .size = size};
    if (size < BUCKET || size % BUCKET != 0 || size / BUCKET > UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a table has whole buckets, and one at least");
        return -1;
    }
    if (counts != NULL) {
        size_t width = (size_t)counts->len / (2 * (size + 1)); /* one more for keys that it has not */
        table->counts = counts->buf;
        table->wide = width == sizeof(int64_t);
        if ((size_t)counts->len != 2 * (size + 1) * width || (width != sizeof(int32_t) && !table->wide)) {
            PyErr_SetString(PyExc_ValueError, "each slot has two counts of 32 or 64 bits");
            return -1;
        }
    }
    return 0;
}

/* The first slot of a key's bucket, as Hashed._bucket: the upper half of its hash as a fraction of the table. */
static inline size_t
bucket_of(const Table *table, int64_t key)
{
    return (size_t)(((uint64_t)key >> 32) * (table->size / BUCKET) >> 32) * BUCKET;
}

/* Bring what will be looked at for a key nearer. */
static inline void
approach(const Table *table, int64_t key)
{
    size_t at = bucket_of(table, key);
    __builtin_prefetch(table->keys + at);
    if (table->counts != NULL)
        __builtin_prefetch((char *)table->counts + at * 2 * (table->wide ? sizeof(int64_t) : sizeof(int32_t)));
}

/* Where a key is, or else the free slot that ends the search for it; `size` if the table is full. */
static inline size_t
slot_of(const Table *table, int64_t key)
{
    size_t at = bucket_of(table, key);
    for (size_t looked = 0; looked < table->size; looked++, at = at + 1 == table->size ? 0 : at + 1)
        if (table->keys[at] == key || table->keys[at] == 0)
            return at;
    return table->size;
}

static inline int64_t
count_of(const Table *table, size_t slot, int column)
{
    size_t at = 2 * slot + (size_t)column;
    return table->wide ? ((int64_t *)table->counts)[at] : ((int32_t *)table->counts)[at];
}

/* The counts of a key in ham and in spam, 0 if it has none. */
static inline void
both_of(const Table *table, int64_t key, int64_t *ham, int64_t *spam)
{
    size_t at = slot_of(table, key);
    int known = at < table->size && table->keys[at] == key;
    *ham = known ? count_of(table, at, 0) : 0;
    *spam = known ? count_of(table, at, 1) : 0;
}

#endif
