/* The load generator: many streams at once from one or several targets, every token compared with what was due.
 *
 *     client MODEL REPEATS RAMP_MS TIMEOUT_S  (NAME PROTOCOL PORT STREAMS BODY)...
 *
 * Opens STREAMS connections to each target (spread over RAMP_MS) and sends each the request BODY, REPEATS times one after
 * the other over the kept connection. PROTOCOL is `chat`, `responses`, `messages` or `rollout`; MODEL says what the answer must be (see text.h).
 * Prints "open" once every stream has its first token, and at the end one line of JSON: per target the tokens that
 * arrived, the reads that brought them, pace, latency (microseconds from the upstream's send) and errors by kind.
 */
#define _GNU_SOURCE
#include "json.h"
#include "samples.h"
#include "text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_GROUPS = 8, READ_SIZE = 64 << 10 };
enum protocol { CHAT, RESPONSES, MESSAGES, ROLLOUT, PROTOCOLS };
enum error { HTTP, CLOSED, FAILED, TEXT_DIFFERS, SEQUENCE, NOT_FINISHED, TIMED_OUT, ERRORS };
static const char *const protocol_names[PROTOCOLS] = {"chat", "responses", "messages", "rollout"};
/* Each run has a rollout of its own, because one takes no more than 10,000 calls. */
static char rollout_path[64];
static const char *const paths[PROTOCOLS] = {"/v1/chat/completions", "/v1/responses", "/v1/messages", rollout_path};
static const char *const error_names[] = {"http", "closed", "failed", "text", "sequence", "not_finished", "timed_out"};

struct group {
    const char *name;
    enum protocol protocol;
    int port, streams, opened, remaining;
    char *request;
    size_t request_length;
    int64_t answers, deltas, reads, errors[ERRORS];
    double pace_sum;
    int64_t started, ended;
    struct samples latency, first_delta;
};

enum http_state { HEAD, CHUNK_SIZE, CHUNK_DATA, CHUNK_END, LAST_CHUNK, COMPLETE };

struct stream {
    int fd, repeats_left, seen_token;
    struct group *group;
    size_t request_sent;
    int64_t sent_at, first_at, last_at;
    enum http_state state;
    size_t chunk_left;
    char line[8192]; /* the head, or a line of the chunk framing */
    size_t line_length;
    char *events; /* SSE bytes not handled yet */
    size_t events_length, events_size, scanned;
    size_t offset[CHANNELS];
    int64_t stamp;
    long sequence;
    int finished, done, failed;
};

static struct answer answer;
static char *expected[CHANNELS];
static size_t expected_length[CHANNELS];
static struct group groups[MAX_GROUPS];
static int group_count, repeats, streams_without_token;
static int poller;

/* ---- the report ---- */

static void print_report(void) {
    printf("{\"groups\":[");
    for (int g = 0; g < group_count; g++) {
        struct group *group = &groups[g];
        printf("%s{\"name\":\"%s\",\"streams\":%d,\"answers\":%lld,\"deltas\":%lld,\"reads\":%lld,\"pace\":%.4f,\"seconds\":%.4f,",
               g ? "," : "", group->name, group->streams, (long long)group->answers, (long long)group->deltas,
               (long long)group->reads, group->answers ? group->pace_sum / (double)group->answers : 0,
               (double)(group->ended - group->started) / 1e6);
        print_samples("latency_us", &group->latency);
        printf(",");
        print_samples("first_delta_us", &group->first_delta);
        printf(",\"errors\":{");
        for (int i = 0; i < ERRORS; i++) printf("%s\"%s\":%lld", i ? "," : "", error_names[i], (long long)group->errors[i]);
        printf("}}");
    }
    printf("]}\n");
}

/* ---- one stream's text ---- */

/* Count the first thing that goes wrong with a stream and show the first few of them. */
static void fail(struct stream *s, enum error kind, const char *shown, size_t length) {
    static int complaints;
    if (s->failed) return;
    s->failed = 1;
    s->group->errors[kind]++;
    if (complaints++ < 3)
        fprintf(stderr, "client: %s: %s: %.*s\n", s->group->name, error_names[kind], (int)(length > 400 ? 400 : length), shown);
}

static void match(struct stream *s, enum channel channel, const char *bytes, size_t length, int64_t now) {
    for (size_t i = 0; i < length; i++) {
        size_t at = s->offset[channel];
        char want = at < expected_length[channel] ? expected[channel][at] : 1;
        if (want == 0 && bytes[i] >= '0' && bytes[i] <= '9') {
            s->stamp = 10 * s->stamp + (bytes[i] - '0');
            if (at + 1 == expected_length[channel] || expected[channel][at + 1]) {
                add_sample(&s->group->latency, now - s->stamp);
                s->stamp = 0;
            }
        } else if (want != bytes[i]) {
            fail(s, TEXT_DIFFERS, bytes + i, length - i);
            return;
        }
        s->offset[channel]++;
    }
}

static void take_delta(struct stream *s, enum channel channel, char *value, const char *end, int64_t now) {
    size_t length = unescape(value, end);
    if (!length) return;
    s->group->deltas++;
    if (!s->first_at) {
        s->first_at = now;
        add_sample(&s->group->first_delta, now - s->sent_at);
        if (!s->seen_token && --streams_without_token == 0) {
            printf("open\n");
            fflush(stdout);
        }
        s->seen_token = 1;
    }
    s->last_at = now;
    match(s, channel, value, length, now);
}

static void take_chat_event(struct stream *s, char *event, char *end, int64_t now) {
    static const char *const keys[CHANNELS] = {"\"reasoning\":", "\"content\":", "\"arguments\":"};
    for (int channel = 0; channel < CHANNELS; channel++) {
        char *value = answer.count[channel] ? string_after(event, end, keys[channel]) : NULL;
        if (value) {
            take_delta(s, channel, value, end, now);
            return;
        }
    }
    if (string_after(event, end, "\"finish_reason\":")) s->finished++;
}

static int names(const char *event, size_t length, const char *name) {
    return length == strlen(name) && !memcmp(event, name, length);
}

static void take_responses_event(struct stream *s, char *event, char *end, int64_t now) {
    static const char *const deltas[CHANNELS] = {
        "response.reasoning_text.delta", "response.output_text.delta", "response.function_call_arguments.delta"};
    char *line_end = memchr(event, '\n', (size_t)(end - event));
    if (end - event < 7 || memcmp(event, "event: ", 7) || !line_end) {
        fail(s, FAILED, event, (size_t)(end - event));
        return;
    }
    char *name = event + 7, *number = memmem(line_end, (size_t)(end - line_end), "\"sequence_number\":", 18);
    size_t name_length = (size_t)(line_end - name);
    if (!number || strtol(number + 18, NULL, 10) != s->sequence++) fail(s, SEQUENCE, event, (size_t)(end - event));
    for (int channel = 0; channel < CHANNELS; channel++)
        if (names(name, name_length, deltas[channel])) {
            char *value = string_after(line_end, end, "\"delta\":");
            if (value) take_delta(s, channel, value, end, now);
            return;
        }
    if (names(name, name_length, "response.completed")) s->finished++;
    if (names(name, name_length, "response.failed") || names(name, name_length, "response.incomplete") ||
        names(name, name_length, "error"))
        fail(s, FAILED, event, (size_t)(end - event));
}

/* Exactly one message_delta and one message_stop end a message; there is no [DONE]. */
static void take_messages_event(struct stream *s, char *event, char *end, int64_t now) {
    static const char *const keys[CHANNELS] = {"\"thinking\":", "\"text\":", "\"partial_json\":"};
    char *line_end = memchr(event, '\n', (size_t)(end - event));
    if (end - event < 7 || memcmp(event, "event: ", 7) || !line_end) {
        fail(s, FAILED, event, (size_t)(end - event));
        return;
    }
    char *name = event + 7;
    size_t name_length = (size_t)(line_end - name);
    if (names(name, name_length, "content_block_delta"))
        for (int channel = 0; channel < CHANNELS; channel++) {
            char *value = answer.count[channel] ? string_after(line_end, end, keys[channel]) : NULL;
            if (value) {
                take_delta(s, channel, value, end, now);
                return;
            }
        }
    if (names(name, name_length, "message_delta")) s->finished++;
    if (names(name, name_length, "message_stop")) s->done++;
    if (names(name, name_length, "error")) fail(s, FAILED, event, (size_t)(end - event));
}

static void take_events(struct stream *s, int64_t now) {
    if (!s->events_length) return;
    char *start = s->events, *end = s->events + s->events_length, *from = s->events + s->scanned, *blank;
    while ((blank = memmem(from, (size_t)(end - from), "\n\n", 2))) {
        *blank = 0; /* a number at the very end must not run on */
        if (blank - start >= 12 && !memcmp(start, "data: [DONE]", 12)) s->done++;
        else if (*start == ':') /* a keep-alive comment */;
        else if (s->group->protocol == CHAT) take_chat_event(s, start, blank, now);
        else if (s->group->protocol == MESSAGES) take_messages_event(s, start, blank, now);
        else take_responses_event(s, start, blank, now);
        start = from = blank + 2;
    }
    s->events_length = (size_t)(end - start);
    memmove(s->events, start, s->events_length);
    s->scanned = s->events_length ? s->events_length - 1 : 0;
}

/* ---- HTTP ---- */

static void begin_answer(struct stream *s) {
    s->state = HEAD;
    s->line_length = s->events_length = s->scanned = s->request_sent = 0;
    memset(s->offset, 0, sizeof s->offset);
    s->stamp = s->sequence = s->first_at = s->last_at = 0;
    s->finished = s->done = s->failed = 0;
    s->sent_at = now_us();
}

static int send_request(struct stream *s) {
    struct group *group = s->group;
    while (s->request_sent < group->request_length) {
        ssize_t sent = send(s->fd, group->request + s->request_sent, group->request_length - s->request_sent, MSG_NOSIGNAL);
        if (sent < 0) return errno == EAGAIN || errno == ENOTCONN;
        s->request_sent += (size_t)sent;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = s};
    epoll_ctl(poller, EPOLL_CTL_MOD, s->fd, &event);
    return 1;
}

static void end_stream(struct stream *s) {
    s->group->remaining--;
    s->group->ended = now_us();
    if (!s->seen_token) streams_without_token--;
    close(s->fd);
    free(s->events);
    s->events = NULL;
    s->fd = -1;
}

/* The answer is over: is it all there? Then the next request of this stream, or its end. */
static void end_answer(struct stream *s) {
    struct group *group = s->group;
    for (int channel = 0; channel < CHANNELS; channel++)
        if (s->offset[channel] != expected_length[channel]) fail(s, TEXT_DIFFERS, "(too short)", 11);
    if (s->finished != 1 || s->done != 1) fail(s, NOT_FINISHED, "(no end mark)", 13);
    if (!s->failed) {
        double ideal = (double)(answer.tokens - 1) * (double)answer.interval_us, taken = (double)(s->last_at - s->first_at);
        group->answers++;
        group->pace_sum += taken <= ideal ? 1 : ideal / taken;
    }
    if (--s->repeats_left > 0 && s->state == COMPLETE) {
        begin_answer(s);
        if (send_request(s)) return;
    }
    end_stream(s);
}

static int head_is_good(const char *head) {
    return !strncmp(head, "HTTP/1.1 200", 12) && strcasestr(head, "\r\ntransfer-encoding: chunked");
}

/* Collect bytes until the line (or the head) is complete. How many bytes were used. */
static size_t take_line(struct stream *s, const char *bytes, size_t length, const char *mark) {
    size_t mark_length = strlen(mark), used = 0;
    while (used < length && s->line_length < sizeof s->line - 1) {
        s->line[s->line_length++] = bytes[used++];
        if (s->line_length >= mark_length && !memcmp(s->line + s->line_length - mark_length, mark, mark_length)) {
            s->line[s->line_length] = 0;
            s->line_length = 0;
            if (s->state == HEAD) s->state = head_is_good(s->line) ? CHUNK_SIZE : COMPLETE;
            else if (s->state == CHUNK_END) s->state = CHUNK_SIZE;
            else if (s->state == LAST_CHUNK) s->state = COMPLETE;
            else s->state = (s->chunk_left = strtoul(s->line, NULL, 16)) ? CHUNK_DATA : LAST_CHUNK;
            return used;
        }
    }
    return used;
}

static void take_bytes(struct stream *s, const char *bytes, size_t length, int64_t now) {
    while (length && s->state != COMPLETE) {
        size_t used;
        if (s->state == CHUNK_DATA) {
            used = length < s->chunk_left ? length : s->chunk_left;
            if (s->events_length + used > s->events_size)
                s->events = realloc(s->events, s->events_size = 2 * (s->events_length + used));
            memcpy(s->events + s->events_length, bytes, used);
            s->events_length += used;
            if (!(s->chunk_left -= used)) s->state = CHUNK_END;
        } else {
            int head = s->state == HEAD;
            used = take_line(s, bytes, length, head ? "\r\n\r\n" : "\r\n");
            if (head && s->state == COMPLETE) {
                fail(s, HTTP, s->line, strlen(s->line));
                s->repeats_left = 0;
            }
        }
        bytes += used;
        length -= used;
    }
    take_events(s, now);
}

static void receive(struct stream *s) {
    static char bytes[READ_SIZE];
    ssize_t got = recv(s->fd, bytes, sizeof bytes, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
        fail(s, CLOSED, "(connection closed)", 19);
        s->repeats_left = 0;
        end_answer(s);
        return;
    }
    s->group->reads++;
    take_bytes(s, bytes, (size_t)got, now_us());
    if (s->state == COMPLETE) end_answer(s);
}

static void open_stream(struct stream *s, struct group *group) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)group->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    s->group = group;
    s->repeats_left = repeats;
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    begin_answer(s);
    if (!group->opened++) group->started = s->sent_at;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = s};
    if (s->fd < 0 || (connect(s->fd, (struct sockaddr *)&address, sizeof address) && errno != EINPROGRESS) ||
        epoll_ctl(poller, EPOLL_CTL_ADD, s->fd, &event)) {
        fail(s, CLOSED, strerror(errno), strlen(strerror(errno)));
        end_stream(s);
    }
}

/* ---- the run ---- */

static int parse_group(char **arguments) {
    struct group *group = &groups[group_count++];
    group->name = arguments[0];
    while (group->protocol < PROTOCOLS && strcmp(arguments[1], protocol_names[group->protocol])) group->protocol++;
    if (group->protocol == PROTOCOLS) return 0;
    group->port = atoi(arguments[2]);
    group->streams = group->remaining = atoi(arguments[3]);
    group->request_length = (size_t)asprintf(
        &group->request,
        "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept: text/event-stream\r\nContent-Type: application/json\r\n"
        "Content-Length: %zu\r\n\r\n%s",
        paths[group->protocol], group->port, strlen(arguments[4]), arguments[4]);
    return 1;
}

static int total_remaining(void) {
    int total = 0;
    for (int g = 0; g < group_count; g++) total += groups[g].remaining;
    return total;
}

/* Open what is due by now: stream i of a group of n starts at i/n of the ramp. The milliseconds until the next one. */
static int open_due(struct stream *streams, int *used, int64_t elapsed_us, int64_t ramp_us) {
    int64_t next = INT64_MAX;
    for (int g = 0; g < group_count; g++) {
        struct group *group = &groups[g];
        while (group->opened < group->streams) {
            int64_t due = ramp_us * group->opened / group->streams;
            if (due > elapsed_us) {
                next = due < next ? due : next;
                break;
            }
            open_stream(&streams[(*used)++], group);
        }
    }
    return next == INT64_MAX ? 100 : (int)((next - elapsed_us) / 1000 + 1);
}

static void run(struct stream *streams, int64_t ramp_us, int64_t timeout_us) {
    struct epoll_event events[256];
    int64_t start = now_us();
    int used = 0;
    while (total_remaining()) {
        int64_t elapsed = now_us() - start;
        if (elapsed > timeout_us) break;
        int ready = epoll_wait(poller, events, 256, open_due(streams, &used, elapsed, ramp_us));
        for (int i = 0; i < ready; i++) {
            struct stream *s = events[i].data.ptr;
            if (s->fd >= 0 && events[i].events & EPOLLOUT && !send_request(s)) {
                fail(s, CLOSED, "(cannot send)", 13);
                end_stream(s);
            }
            if (s->fd >= 0 && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(s);
        }
    }
    for (int i = 0; i < used; i++)
        if (streams[i].fd >= 0) {
            fail(&streams[i], TIMED_OUT, "(timed out)", 11);
            end_stream(&streams[i]);
        }
}

int main(int argc, char **argv) {
    snprintf(rollout_path, sizeof rollout_path, "/rollouts/bench-%d/v1/responses", getpid());
    int good = argc >= 10 && (argc - 5) % 5 == 0 && (argc - 5) / 5 <= MAX_GROUPS && parse_model(argv[1], strlen(argv[1]), &answer);
    for (int i = 5; good && i < argc; i += 5) good = parse_group(argv + i);
    if (!good) {
        fprintf(stderr, "usage: client MODEL REPEATS RAMP_MS TIMEOUT_S (NAME chat|responses|messages|rollout PORT STREAMS BODY)...\n");
        return 2;
    }
    repeats = atoi(argv[2]);
    for (int channel = 0; channel < CHANNELS; channel++)
        expected[channel] = expected_text(channel, answer.count[channel], &expected_length[channel]);
    streams_without_token = total_remaining();
    struct stream *streams = calloc((size_t)total_remaining(), sizeof *streams);
    poller = epoll_create1(EPOLL_CLOEXEC);
    run(streams, atoll(argv[3]) * 1000, atoll(argv[4]) * 1000000);
    print_report();
    return 0;
}
