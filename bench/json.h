/* As much JSON as the client reads: the value of one string in an event whose shape is known. */
#ifndef BENCH_JSON_H
#define BENCH_JSON_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <string.h>

static inline unsigned hex4(const char *p) {
    unsigned value = 0;
    for (int i = 0; i < 4; i++) value = 16 * value + (unsigned)(p[i] <= '9' ? p[i] - '0' : (p[i] | 32) - 'a' + 10);
    return value;
}

static inline char *put_utf8(char *to, unsigned code) {
    if (code < 0x80) {
        *to++ = (char)code;
        return to;
    }
    if (code < 0x800) {
        *to++ = (char)(0xC0 | code >> 6);
    } else {
        if (code < 0x10000) {
            *to++ = (char)(0xE0 | code >> 12);
        } else {
            *to++ = (char)(0xF0 | code >> 18);
            *to++ = (char)(0x80 | (code >> 12 & 63));
        }
        *to++ = (char)(0x80 | (code >> 6 & 63));
    }
    *to++ = (char)(0x80 | (code & 63));
    return to;
}

/* Decode the JSON string that begins after its opening quote, in place; the length of its text. */
static inline size_t unescape(char *at, const char *end) {
    char *start = at, *to = at;
    while (at < end && *at != '"') {
        if (*at != '\\') {
            *to++ = *at++;
            continue;
        }
        at++;
        if (*at == 'u' && end - at > 5) {
            unsigned code = hex4(at + 1);
            at += 5;
            if (code >> 10 == 0x36 && end - at > 6 && at[0] == '\\' && at[1] == 'u') {
                code = 0x10000 + ((code & 0x3FF) << 10) + (hex4(at + 2) & 0x3FF);
                at += 6;
            }
            to = put_utf8(to, code);
            continue;
        }
        *to++ = *at == 'n' ? '\n' : *at == 't' ? '\t' : *at == 'r' ? '\r' : *at;
        at++;
    }
    return (size_t)(to - start);
}

/* The place after `"key":"` in an event, blanks allowed after the colon; NULL if it is not there. */
static inline char *string_after(char *event, const char *end, const char *key) {
    size_t length = strlen(key);
    char *at = memmem(event, (size_t)(end - event), key, length);
    if (!at) return NULL;
    for (at += length; at < end && *at == ' ';) at++;
    return at < end && *at == '"' ? at + 1 : NULL;
}

#endif
