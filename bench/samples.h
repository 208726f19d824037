/* Samples of a quantity, and their percentiles. */
#ifndef BENCH_SAMPLES_H
#define BENCH_SAMPLES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct samples {
    float *values;
    size_t count, size;
};

static inline void add_sample(struct samples *samples, int64_t value) {
    if (samples->count == samples->size)
        samples->values = realloc(samples->values, (samples->size = 2 * samples->size + 4096) * sizeof(float));
    samples->values[samples->count++] = (float)value;
}

static inline int compare_floats(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Nearest rank, of sorted samples. */
static inline double percentile(const struct samples *s, size_t percent) {
    return s->values[(s->count * percent + 99) / 100 - 1];
}

static inline void print_samples(const char *name, struct samples *s) {
    if (s->count) qsort(s->values, s->count, sizeof(float), compare_floats);
    printf("\"%s\":{\"count\":%zu", name, s->count);
    if (s->count)
        printf(",\"p50\":%.0f,\"p99\":%.0f,\"max\":%.0f", percentile(s, 50), percentile(s, 99), percentile(s, 100));
    printf("}");
}

#endif
