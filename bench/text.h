/* What the upstream says and the client expects: the text of a synthetic answer, known to both without being sent twice.
 *
 * An answer is told by its model name, which survives every gateway:
 *     burst:500          500 tokens at once
 *     paced:200:20ms     200 tokens, one each 20 ms
 *     mix:200:20ms       paced; 40% reasoning, 30% text, 30% arguments of one function call
 *
 * Every STAMP_EVERY-th token is '#' and the moment of its send (CLOCK_MONOTONIC, microseconds, STAMP_DIGITS digits), so
 * that the client knows how long a token was on its way whatever happened to the bytes around it.
 */
#ifndef BENCH_TEXT_H
#define BENCH_TEXT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STAMP_EVERY = 4, STAMP_DIGITS = 14, TOKEN_MAX = 32 };
enum channel { REASONING, TEXT, ARGUMENTS, CHANNELS };

struct answer {
    int tokens;
    int64_t interval_us; /* 0: all at once */
    int count[CHANNELS]; /* tokens of each channel; they are sent in the order of the channels */
};

static const char *const WORDS[] = {
    "The", " model", " answers", " with", " é", " naïve", " 模型", " 🙂", " \"quoted\"", " back\\slash", "\n", " of", " length", ".",
};
/* Inside the arguments of a call: nothing that JSON would escape a second time. */
static const char *const PLAIN_WORDS[] = {"one", " two", " é", " three", " 模型", " four", " 🙂"};

static inline int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Reads a model name (not necessarily ended by a zero byte). False if it is none of the three forms. */
static inline int parse_model(const char *name, size_t length, struct answer *answer) {
    char text[128], kind[16];
    int tokens = 0, interval_ms = 0;
    if (length >= sizeof text) return 0;
    memcpy(text, name, length);
    text[length] = 0;
    int fields = sscanf(text, "%15[a-z]:%d:%dms", kind, &tokens, &interval_ms);
    if (fields < 2 || tokens < 1 || interval_ms < 0) return 0;
    memset(answer, 0, sizeof *answer);
    answer->tokens = tokens;
    answer->interval_us = (int64_t)interval_ms * 1000;
    if (!strcmp(kind, "mix") && tokens >= 10) {
        answer->count[REASONING] = tokens * 4 / 10;
        answer->count[TEXT] = tokens * 3 / 10;
        answer->count[ARGUMENTS] = tokens - answer->count[REASONING] - answer->count[TEXT];
        return fields == 3;
    }
    answer->count[TEXT] = tokens;
    return (!strcmp(kind, "burst") && fields == 2) || (!strcmp(kind, "paced") && fields == 3);
}

static inline int is_stamp(int index, int count) {
    return index % STAMP_EVERY == STAMP_EVERY - 1 && index != count - 1;
}

/* The text of token `index` of `count` in a channel, when it is no stamp. */
static inline const char *token_text(enum channel channel, int index, int count) {
    if (channel != ARGUMENTS) return WORDS[(size_t)index % (sizeof WORDS / sizeof *WORDS)];
    if (index == 0) return "{\"text\":\"";
    if (index == count - 1) return "\"}";
    return PLAIN_WORDS[(size_t)index % (sizeof PLAIN_WORDS / sizeof *PLAIN_WORDS)];
}

/* The whole text of a channel; the digits of stamps are zero bytes. The caller frees it. */
static inline char *expected_text(enum channel channel, int count, size_t *length) {
    char *text = malloc((size_t)count * TOKEN_MAX + 1), *end = text;
    for (int i = 0; i < count; i++) {
        if (is_stamp(i, count)) {
            *end++ = '#';
            memset(end, 0, STAMP_DIGITS);
            end += STAMP_DIGITS;
        } else {
            size_t size = strlen(token_text(channel, i, count));
            memcpy(end, token_text(channel, i, count), size);
            end += size;
        }
    }
    *length = (size_t)(end - text);
    return text;
}

#endif
