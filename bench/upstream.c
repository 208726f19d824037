/* A Chat Completions server that costs next to nothing: the upstream of the load harness.
 *
 * Every POST is answered with a stream of the shape vLLM sends: one SSE event per token, each its own HTTP chunk and, when
 * paced, its own send() with TCP_NODELAY. What to send is read from the request's model name (see text.h). One thread,
 * epoll, a heap of deadlines. Streams start at a random phase within their interval, so they do not tick together.
 *
 *     upstream PORT [MODEL]...   (0: any free port)     prints "ready PORT" when it listens
 *
 * With models it says that it is vLLM and has those, and sends the ids of tokens to those who ask for them, and their log
 * probabilities.
 */
#define _GNU_SOURCE
#include "text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { MAX_FD = 65536, MAX_REQUEST = 4 << 20, BATCH = 64 << 10, PIECE_MAX = 1024, FIRST_ID = 10000, IDS = 80000 };

struct connection {
    int fd, streaming, writable, usage, ids, logprobs, heap_index; /* heap_index -1: no deadline */
    char *in;
    size_t in_length, in_size;
    char *out; /* bytes that the socket did not take yet, or a batch in the making */
    size_t out_start, out_end;
    char model[128];
    struct answer answer;
    int piece; /* the next piece of the stream: see append_piece */
    int64_t deadline;
};

static struct connection *connections[MAX_FD];
static struct connection *heap[MAX_FD];
static int heap_length, poller, timer;
static int64_t armed;
static char model_list[4096] = "{\"object\":\"list\",\"data\":[{\"id\":\"burst:1\",\"object\":\"model\"}]}";
static int sends_ids;

/* ---- deadlines: a binary heap, earliest first ---- */

static void heap_put(int i, struct connection *c) {
    heap[i] = c;
    c->heap_index = i;
}

static void heap_settle(int i) {
    struct connection *c = heap[i];
    while (i > 0 && heap[(i - 1) / 2]->deadline > c->deadline) {
        heap_put(i, heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    for (;;) {
        int child = 2 * i + 1;
        if (child + 1 < heap_length && heap[child + 1]->deadline < heap[child]->deadline) child++;
        if (child >= heap_length || heap[child]->deadline >= c->deadline) break;
        heap_put(i, heap[child]);
        i = child;
    }
    heap_put(i, c);
}

static void schedule(struct connection *c, int64_t deadline) {
    c->deadline = deadline;
    if (c->heap_index < 0) heap_put(heap_length++, c);
    heap_settle(c->heap_index);
}

static void unschedule(struct connection *c) {
    int i = c->heap_index;
    if (i < 0) return;
    c->heap_index = -1;
    if (i == --heap_length) return;
    heap_put(i, heap[heap_length]);
    heap_settle(i);
}

static void arm_timer(void) {
    int64_t deadline = heap_length ? heap[0]->deadline : 0;
    if (deadline == armed) return;
    struct itimerspec spec = {.it_value = {.tv_sec = deadline / 1000000, .tv_nsec = deadline % 1000000 * 1000}};
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &spec, NULL);
    armed = deadline;
}

/* ---- what is sent ---- */

static size_t escape(char *to, const char *text) {
    char *start = to;
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') *to++ = '\\';
        if (*text == '\n') {
            *to++ = '\\';
            *to++ = 'n';
        } else {
            *to++ = *text;
        }
    }
    *to = 0;
    return (size_t)(to - start);
}

/* Append a delta, and write the log probability of its token, whose text may be another's: nobody compares it. */
static int delta_json(const struct connection *c, int token, char *to, char *logprobs) {
    static const char *const shapes[CHANNELS] = {
        "{\"reasoning\":\"%s\"}",
        "{\"content\":\"%s\"}",
        "{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"%s\"}}]}",
    };
    static const char *const call =
        "{\"tool_calls\":[{\"id\":\"chatcmpl-tool-9f3a\",\"type\":\"function\",\"index\":0,"
        "\"function\":{\"name\":\"save\",\"arguments\":\"%s\"}}]}";
    char text[2 * TOKEN_MAX];
    int channel = 0;
    while (token >= c->answer.count[channel]) token -= c->answer.count[channel++];
    int count = c->answer.count[channel];
    if (is_stamp(token, count))
        snprintf(text, sizeof text, "#%0*lld", STAMP_DIGITS, (long long)now_us());
    else
        escape(text, token_text(channel, token, count));
    if (c->logprobs)
        sprintf(logprobs,
                "{\"content\":[{\"token\":\"%s\",\"logprob\":-%d.%06d,\"bytes\":[32,119,111,114,100],\"top_logprobs\":[]}]}", text,
                token % 3, token * 7919 % 1000000);
    return sprintf(to, channel == ARGUMENTS && token == 0 ? call : shapes[channel], text);
}

/* The JSON of a piece: 0 the role, 1..n the tokens, then the finish, the usage (if asked for) and the end mark. */
static int piece_json(const struct connection *c, char *to) {
    int n = c->answer.tokens, piece = c->piece;
    if (piece == n + 3) return sprintf(to, "[DONE]");
    char *start = to;
    to += sprintf(to,
                  "{\"id\":\"chatcmpl-b47c35f0651099b6\",\"object\":\"chat.completion.chunk\",\"created\":1795188183,"
                  "\"model\":\"%s\",\"choices\":[",
                  c->model);
    if (piece == n + 2) {
        to += sprintf(to, "],\"usage\":{\"prompt_tokens\":12,\"total_tokens\":%d,\"completion_tokens\":%d}}", n + 12, n);
        return (int)(to - start);
    }
    char ids[16] = "null";
    if (c->ids) sprintf(ids, "[%d]", FIRST_ID + piece % IDS);
    to += sprintf(to, "{\"index\":0,\"delta\":");
    if (piece == 0) {
        to += sprintf(to, "{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]");
        to += sprintf(to, c->ids ? ",\"prompt_token_ids\":[151644,872,198,45764,2494,315,279,2661,3084,13,151645,198]}" : "}");
    } else if (piece <= n) {
        char logprobs[2 * TOKEN_MAX + 128] = "null";
        to += delta_json(c, piece - 1, to, logprobs);
        to += sprintf(to, ",\"logprobs\":%s,\"finish_reason\":null,\"token_ids\":%s}]}", logprobs, ids);
    } else
        to += sprintf(to, "{},\"logprobs\":%s,\"finish_reason\":\"%s\",\"stop_reason\":null,\"token_ids\":%s}]}",
                      c->logprobs ? "{\"content\":[{\"token\":\"<|im_end|>\",\"logprob\":-0.1}]}" : "null",
                      c->answer.count[ARGUMENTS] ? "tool_calls" : "stop", ids);
    return (int)(to - start);
}

/* Append the next piece as an HTTP chunk. False when there is none left. */
static int append_piece(struct connection *c) {
    char json[PIECE_MAX];
    if (c->piece > c->answer.tokens + 4) return 0;
    if (c->piece == c->answer.tokens + 4) {
        memcpy(c->out + c->out_end, "0\r\n\r\n", 5);
        c->out_end += 5;
        c->piece++;
        return 1;
    }
    if (c->piece == c->answer.tokens + 2 && !c->usage) c->piece++;
    int length = piece_json(c, json);
    c->out_end += (size_t)sprintf(c->out + c->out_end, "%x\r\ndata: %s\n\n\r\n", length + 8, json);
    c->piece++;
    return 1;
}

/* ---- connections ---- */

static void drop(struct connection *c) {
    unschedule(c);
    connections[c->fd] = NULL;
    close(c->fd);
    free(c->in);
    free(c->out);
    free(c);
}

static void watch(struct connection *c, uint32_t events) {
    struct epoll_event event = {.events = events | EPOLLRDHUP, .data.fd = c->fd};
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
}

/* Send what is in `out`. 1: all gone, 0: the socket is full (and watched), -1: the connection was dropped. */
static int flush(struct connection *c) {
    while (c->out_start < c->out_end) {
        ssize_t sent = send(c->fd, c->out + c->out_start, c->out_end - c->out_start, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            if (c->writable) watch(c, EPOLLIN | EPOLLOUT);
            c->writable = 0;
            return 0;
        }
        if (sent < 0) {
            drop(c);
            return -1;
        }
        c->out_start += (size_t)sent;
    }
    c->out_start = c->out_end = 0;
    if (!c->writable) watch(c, EPOLLIN);
    c->writable = 1;
    return 1;
}

static int read_request(struct connection *c);

/* Send pieces until the next one is in the future or the socket is full. */
static void advance(struct connection *c) {
    int64_t interval = c->answer.interval_us;
    for (;;) {
        int state = flush(c);
        if (state <= 0 || !c->streaming) return;
        int more = 1;
        if (interval) {
            if (c->piece >= 1 && c->piece <= c->answer.tokens && c->deadline > now_us()) {
                schedule(c, c->deadline);
                return;
            }
            more = append_piece(c);
            if (c->piece > 1) c->deadline += interval;
        } else {
            while (c->out_end < BATCH - PIECE_MAX && (more = append_piece(c))) continue;
        }
        if (!more && !c->out_end) {
            c->streaming = 0;
            unschedule(c);
            read_request(c); /* a request may already wait in the buffer */
            return;
        }
    }
}

static void start_stream(struct connection *c) {
    c->streaming = 1;
    c->piece = 0;
    c->deadline = now_us();
    if (c->answer.interval_us) c->deadline += random() % c->answer.interval_us;
    c->out_end = (size_t)sprintf(c->out, "HTTP/1.1 200 OK\r\nserver: bench\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                                         "transfer-encoding: chunked\r\n\r\n");
    append_piece(c);
    advance(c);
}

static int answer_plainly(struct connection *c, const char *status, const char *body) {
    c->out_end = (size_t)sprintf(c->out, "HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s", status,
                                 strlen(body), body);
    return flush(c);
}

/* Find the value of the body's "model". An escaped quote inside another string cannot look like this key. */
static int find_model(struct connection *c, const char *body, size_t length) {
    const char *end = body + length, *at = memmem(body, length, "\"model\"", 7);
    if (!at) return 0;
    at += 7;
    while (at < end && (*at == ' ' || *at == ':')) at++;
    if (at == end || *at++ != '"') return 0;
    const char *close_quote = memchr(at, '"', (size_t)(end - at));
    if (!close_quote || (size_t)(close_quote - at) >= sizeof c->model) return 0;
    memcpy(c->model, at, (size_t)(close_quote - at));
    c->model[close_quote - at] = 0;
    return parse_model(c->model, strlen(c->model), &c->answer);
}

/* Take one request out of the buffer, if a whole one is there, and answer it. 1: go on, -1: the connection was dropped. */
static int read_request(struct connection *c) {
    char *head_end = c->in_length ? memmem(c->in, c->in_length, "\r\n\r\n", 4) : NULL;
    if (!head_end) return 1;
    *head_end = 0;
    char *field = strcasestr(c->in, "\r\ncontent-length:");
    size_t body_length = field ? strtoul(field + 17, NULL, 10) : 0;
    size_t total = (size_t)(head_end - c->in) + 4 + body_length;
    int is_get = !strncmp(c->in, "GET ", 4), is_models = is_get && strstr(c->in, "/models ") != NULL;
    *head_end = '\r';
    if (total > MAX_REQUEST) {
        drop(c);
        return -1;
    }
    if (c->in_length < total) return 1;
    const char *body = head_end + 4;
    int known = !is_get && find_model(c, body, body_length);
    c->usage = memmem(body, body_length, "\"include_usage\"", 15) != NULL;
    c->ids = sends_ids && memmem(body, body_length, "\"return_token_ids\":true", 23) != NULL;
    c->logprobs = c->ids && memmem(body, body_length, "\"logprobs\":true", 15) != NULL;
    memmove(c->in, c->in + total, c->in_length - total);
    c->in_length -= total;
    if (known) start_stream(c);
    else if (is_models) return answer_plainly(c, "200 OK", model_list);
    else if (is_get) return answer_plainly(c, "404 Not Found", "{\"error\":{\"message\":\"not here\",\"code\":404}}");
    else return answer_plainly(c, "400 Bad Request", "{\"error\":{\"message\":\"no model of the harness\",\"code\":400}}");
    return 1;
}

static void receive(struct connection *c) {
    if (c->in_size - c->in_length < 16384) c->in = realloc(c->in, c->in_size = 2 * c->in_size + 16384);
    ssize_t got = recv(c->fd, c->in + c->in_length, c->in_size - c->in_length, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
        drop(c);
        return;
    }
    c->in_length += (size_t)got;
    if (!c->streaming) read_request(c);
}

static void accept_all(int listener) {
    int fd, one = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        if (fd >= MAX_FD) {
            close(fd);
            continue;
        }
        struct connection *c = calloc(1, sizeof *c);
        c->fd = fd;
        c->heap_index = -1;
        c->writable = 1;
        c->out = malloc(BATCH + PIECE_MAX);
        connections[fd] = c;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.fd = fd};
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
    }
}

static int listen_on(int port) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4096)) {
        perror("upstream: listen");
        exit(1);
    }
    getsockname(listener, (struct sockaddr *)&address, &length);
    printf("ready %d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

static void send_due(void) {
    uint64_t ticks;
    ssize_t ignored = read(timer, &ticks, sizeof ticks);
    (void)ignored;
    armed = 0;
    for (int64_t now = now_us(); heap_length && heap[0]->deadline <= now;) {
        struct connection *c = heap[0];
        unschedule(c);
        advance(c);
    }
}

static void list_models(char **names) {
    char *to = model_list + sprintf(model_list, "{\"object\":\"list\",\"data\":[");
    for (int i = 0; names[i]; i++)
        to += snprintf(to, 256, "%s{\"id\":\"%s\",\"object\":\"model\",\"owned_by\":\"vllm\",\"root\":\"%s\",\"max_model_len\":131072}",
                       i ? "," : "", names[i], names[i]);
    sprintf(to, "]}");
    sends_ids = 1;
}

int main(int argc, char **argv) {
    struct epoll_event events[256];
    if (argc > 2 && argc < 14) list_models(argv + 2);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    poller = epoll_create1(EPOLL_CLOEXEC);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    int listener = listen_on(argc > 1 ? atoi(argv[1]) : 0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
    event.data.fd = timer;
    epoll_ctl(poller, EPOLL_CTL_ADD, timer, &event);
    for (;;) {
        arm_timer();
        int ready = epoll_wait(poller, events, 256, -1);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) accept_all(listener);
            else if (fd == timer) send_due();
            else if (connections[fd] && (events[i].events & (EPOLLHUP | EPOLLERR))) drop(connections[fd]);
            else {
                if (connections[fd] && events[i].events & (EPOLLIN | EPOLLRDHUP)) receive(connections[fd]);
                if (connections[fd] && events[i].events & EPOLLOUT) advance(connections[fd]);
            }
        }
    }
}
