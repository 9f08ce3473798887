/* Exact sums and the soft rule, without anything of Python. The arithmetic is what IEEE 754 defines to the last bit, in
 * the order of the Python side (compiled without contractions to fused operations).
 */
#ifndef SPAMFILTER_ARITHMETIC_H
#define SPAMFILTER_ARITHMETIC_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { FEW = 4096 };         /* this many numbers below 2^6 have a sum below 2^18 */
enum { LOWEST = 1023 - 56 }; /* exponents of numbers from 2^-56 on, to below 2^6 */
enum { HIGHEST = 1023 + 5 };

/* The sum of these numbers, rounded once, computed in units of 2^-108. Returns 0 where the units are too large for a
 * number, or the sum too large for 128 bits. */
static inline int
total_of_usual(const double *values, size_t number, double *sum)
{
#ifdef __SIZEOF_INT128__
    __int128 total = 0;
    if (number > FEW)
        return 0;
    for (size_t i = 0; i < number; i++) {
        uint64_t bits;
        memcpy(&bits, values + i, sizeof bits);
        int exponent = (int)(bits >> 52 & 0x7FF);
        if (bits << 1 == 0)
            continue;
        if (exponent < LOWEST || exponent > HIGHEST)
            return 0;
        __int128 units = (__int128)((bits & ((1ULL << 52) - 1)) | 1ULL << 52) << (exponent - LOWEST);
        total += bits >> 63 ? -units : units;
    }
    *sum = ldexp((double)total, -56 - 52);
    return 1;
#else
    return 0;
#endif
}

/* The same for any finite numbers; -1 if one is not finite. */
static inline int
total_of(const double *values, size_t number, double *sum)
{
    /* Shewchuk's partial sums (Adaptive precision floating-point arithmetic, 1997): they do not overlap, ascend in
       magnitude, and add up to the exact sum. A double has 53 of at most 2,100 bits, so that 64 are always enough. */
    double partials[64];
    int used = 0;
    if (total_of_usual(values, number, sum))
        return 0;
    for (size_t i = 0; i < number; i++) {
        double x = values[i];
        int kept = 0;
        if (!isfinite(x) || used == 63)
            return -1;
        for (int j = 0; j < used; j++) {
            double y = partials[j];
            volatile double high = x + y, low;
            low = fabs(x) < fabs(y) ? x - (high - y) : y - (high - x);
            if (low != 0)
                partials[kept++] = low;
            x = high;
        }
        partials[kept++] = x;
        used = kept;
    }
    *sum = 0;
    if (used > 0) {
        volatile double low = 0;
        *sum = partials[--used];
        while (used > 0 && low == 0) {
            double x = *sum, y = partials[--used];
            volatile double high = x + y;
            low = y - (high - x);
            *sum = high;
        }
        /* Half-way between two doubles: the sign of the next partial decides. */
        if (used > 0 && ((low < 0 && partials[used - 1] < 0) || (low > 0 && partials[used - 1] > 0))) {
            double twice = low * 2;
            volatile double other = *sum + twice;
            if (twice == other - *sum)
                *sum = other;
        }
    }
    return 0;
}

/* The share of a word by the soft rule, not yet divided by the root of the number of words: see Soft.shares. logarithms:
 * of the sum of a count and the prior, for each count from 0 on. */
static inline double
soft_share(const double *logarithms, int64_t ham, int64_t spam, double scale, double purity)
{
    double h = (double)ham, s = (double)spam;
    return (logarithms[spam] - logarithms[ham]) * scale * sqrt(fabs(s - h) / (s + h + purity));
}

#endif
