/* The load generator: one thread, epoll, 127.0.0.1. It reads every answer, holds it against the text that its seed
 * must give (text.h), and prints one JSON line of what it saw.
 *
 * load PORT MODEL STREAMS REQUESTS TOKENS STREAMED SECONDS [FILL]
 *   STREAMS    connections, each with one request under way at a time, kept alive between them
 *   REQUESTS   in all
 *   STREAMED   1 or 0
 *   SECONDS    after which it gives up
 *   FILL       bytes of prompt; 400 unless said
 * Exit code 0 when every answer was right. Times are microseconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "text.h"

enum { READ_MAX = 262144, LINE_MAX_BYTES = 4 << 20 };
enum state { HEAD, SIZE, DATA, DATA_END, TRAILER };

struct connection {
    int fd;
    char *line; /* the unfinished line of the head, of the framing or of the body */
    size_t line_size, line_room;
    enum state state;
    size_t left; /* of the body (content-length) or of its chunk */
    bool busy, chunked, finished, done, first;
    char *out; /* the request, and how much of it is sent */
    size_t out_size, out_at;
    char *expected;
    size_t expected_size, at;
    int64_t sent_at, last_at;
};

static struct {
    long requests, events, reads;
    unsigned long long bytes;
} seen;
static const char *model;
static int port, epoll_fd;
static long streams, wanted, tokens, begun, ended, fill = 400;
static bool streamed, calling;
static double *first_us, *gaps_us, *request_us;
static size_t gap_count, first_count;
static char *prompt, format[sizeof SCHEMA + 160]; /* the response_format of a document, or the tool */

static void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
static void fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "load: after %ld of %ld answers: ", ended, wanted);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void *room(void *old, size_t size) {
    void *got = realloc(old, size ? size : 1);
    if (!got) fail("no memory");
    return got;
}

static void push(struct connection *c) {
    while (c->out_at < c->out_size) {
        ssize_t n = send(c->fd, c->out + c->out_at, c->out_size - c->out_at, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) break;
        if (n < 0) fail("the request could not be sent: %s", strerror(errno));
        c->out_at += (size_t)n;
    }
    struct epoll_event e = {.events = EPOLLIN | (c->out_at < c->out_size ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
}

static void begin(struct connection *c) {
    if (begun == wanted) {
        c->busy = false;
        return;
    }
    unsigned long seed = 1000003UL * (unsigned long)++begun % 2147483647UL;
    struct text text;
    text_seed_for(&text, seed, model, tokens);
    c->expected = room(c->expected, (size_t)tokens * PIECE_MAX);
    c->expected_size = c->at = 0;
    for (long i = 0; i < tokens; i++) c->expected_size += text_next(&text, c->expected + c->expected_size);
    char *body;
    int size = asprintf(&body,
                        "{\"model\":\"%s\",\"messages\":[{\"role\":\"system\",\"content\":\"You are a helpful assistant.\"},"
                        "{\"role\":\"user\",\"content\":\"%s\"}],\"temperature\":0.7,\"seed\":%lu,\"max_tokens\":%ld,\"stream\":%s%s}",
                        model, prompt, seed, tokens, streamed ? "true" : "false", format);
    char *all;
    int whole = size < 0 ? -1
                         : asprintf(&all, "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n"
                                          "content-type: application/json\r\ncontent-length: %d\r\n\r\n%s", port, size, body);
    if (whole < 0) fail("no memory");
    free(body);
    free(c->out);
    c->out = all;
    c->out_size = (size_t)whole;
    c->out_at = 0;
    c->state = HEAD;
    c->busy = true;
    c->chunked = c->finished = c->done = c->first = false;
    c->line_size = c->left = 0;
    c->sent_at = now_ns();
    push(c);
}

/* The JSON string at ``at`` (after its opening quote) must be what comes next of the expected text. */
static void match(struct connection *c, const char *at, const char *end) {
    while (at < end && *at != '"') {
        char bytes[4] = {*at++};
        size_t size = 1;
        if (bytes[0] == '\\' && at < end) {
            char kind = *at++;
            if (kind == 'u') {
                char digits[5] = {0};
                if (end - at < 4) fail("half of an escape");
                memcpy(digits, at, 4);
                at += 4;
                unsigned code = (unsigned)strtoul(digits, NULL, 16); /* the text has nothing beyond two bytes */
                if (code < 0x80) bytes[0] = (char)code;
                else bytes[0] = (char)(0xc0 | code >> 6), bytes[1] = (char)(0x80 | (code & 63)), size = 2;
            } else bytes[0] = kind == 'n' ? '\n' : kind == 't' ? '\t' : kind == 'r' ? '\r' : kind;
        }
        if (c->at + size > c->expected_size || memcmp(c->expected + c->at, bytes, size))
            fail("the text differs at byte %zu of %zu: ...%.*s", c->at, c->expected_size, (int)(end - at), at);
        c->at += size;
    }
}

static const char *find(const char *from, size_t size, const char *what) {
    const char *at = memmem(from, size, what, strlen(what));
    return at ? at + strlen(what) : NULL;
}

static void take_json(struct connection *c, const char *data, size_t size) {
    const char *text = find(data, size, calling ? "\"arguments\":\"" : "\"content\":\"");
    if (text && *text != '"') {
        size_t before = c->at;
        match(c, text, data + size);
        int64_t now = now_ns();
        seen.events++;
        if (!before) first_us[first_count++] = (double)(now - c->sent_at) / 1e3;
        else if (streamed) gaps_us[gap_count++] = (double)(now - c->last_at) / 1e3;
        c->last_at = now;
    }
    const char *reason = find(data, size, "\"finish_reason\":\"");
    if (reason) {
        const char *right = calling ? "tool_calls\"" : "stop\"";
        if (strncmp(reason, right, strlen(right))) fail("finish_reason %.16s", reason);
        c->finished = true;
    }
    if (!text && !reason && find(data, size, "\"error\":")) fail("an error: %.*s", (int)size, data);
}

static void answer_ended(struct connection *c) {
    if (!streamed) {
        take_json(c, c->line, c->line_size);
        c->done = true;
    }
    if (c->at != c->expected_size) fail("%zu of %zu bytes of text came", c->at, c->expected_size);
    if (!c->finished) fail("no finish_reason came");
    if (!c->done) fail("no [DONE] came");
    request_us[ended++] = (double)(now_ns() - c->sent_at) / 1e3;
    seen.requests++;
    begin(c);
}

static void keep(struct connection *c, const char *data, size_t size) {
    if (c->line_size + size + 1 > c->line_room) c->line = room(c->line, c->line_room = 2 * (c->line_size + size) + 4096);
    memcpy(c->line + c->line_size, data, size);
    c->line_size += size;
    if (c->line_size > LINE_MAX_BYTES) fail("a line of more than %d bytes", LINE_MAX_BYTES);
}

static void event_line(struct connection *c, const char *line, size_t size) {
    if (size && line[size - 1] == '\r') size--;
    if (size == 12 && !memcmp(line, "data: [DONE]", 12)) c->done = true;
    else if (size > 6 && !memcmp(line, "data: ", 6)) take_json(c, line + 6, size - 6);
    else if (size) fail("not an event: %.*s", (int)size, line);
}

static void take_body(struct connection *c, const char *data, size_t size) {
    if (!streamed) {
        keep(c, data, size);
        return;
    }
    const char *end = data + size, *stop;
    while ((stop = memchr(data, '\n', (size_t)(end - data)))) {
        if (c->line_size) {
            keep(c, data, (size_t)(stop - data));
            event_line(c, c->line, c->line_size);
            c->line_size = 0;
        } else event_line(c, data, (size_t)(stop - data));
        data = stop + 1;
    }
    if (data < end) keep(c, data, (size_t)(end - data));
}

static void take_head(struct connection *c) {
    keep(c, "", 1);
    if (strncmp(c->line, "HTTP/1.1 200 ", 13)) fail("%s", c->line);
    const char *length = strcasestr(c->line, "\r\ncontent-length:");
    c->chunked = strcasestr(c->line, "\r\ntransfer-encoding: chunked") != NULL;
    if (!length && !c->chunked) fail("an answer without a length");
    c->left = length ? strtoul(length + 17, NULL, 10) : 0;
    c->line_size = 0;
    c->state = c->chunked ? SIZE : DATA;
}

/* c->line holds the head, then the unfinished line of the body; the framing needs no more than c->left. */
static void take(struct connection *c, const char *data, size_t size) {
    const char *end = data + size;
    while (data < end) {
        if (!c->busy) fail("an answer to no request: %.*s", (int)(end - data), data);
        switch (c->state) {
        case HEAD:
            keep(c, data++, 1);
            if (c->line_size >= 4 && !memcmp(c->line + c->line_size - 4, "\r\n\r\n", 4)) take_head(c);
            break;
        case SIZE: { /* hexadecimal digits, a line end; ``left`` gathers them */
            char ch = *data++;
            if (ch == '\n') c->state = c->left ? DATA : TRAILER;
            else if (ch >= '0' && ch <= '9') c->left = c->left * 16 + (size_t)(ch - '0');
            else if ((ch | 32) >= 'a' && (ch | 32) <= 'f') c->left = c->left * 16 + (size_t)((ch | 32) - 'a' + 10);
            else if (ch != '\r') fail("not a chunk size: %c", ch);
            break;
        }
        case DATA: {
            size_t n = (size_t)(end - data) < c->left ? (size_t)(end - data) : c->left;
            take_body(c, data, n);
            data += n;
            if (c->left -= n) break;
            if (c->chunked) c->state = DATA_END;
            else answer_ended(c);
            break;
        }
        case DATA_END:
            if (*data++ == '\n') c->state = SIZE;
            break;
        case TRAILER:
            if (*data++ == '\n') answer_ended(c);
            break;
        }
    }
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void quantiles(const char *name, double *values, size_t count) {
    qsort(values, count, sizeof *values, by_value);
    printf(",\"%s_p50\":%.1f,\"%s_p99\":%.1f", name, count ? values[count / 2] : 0.0, name,
           count ? values[count * 99 / 100] : 0.0);
}

static int connected(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)) fail("cannot connect: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

int main(int argc, char **argv) {
    if (argc < 8) return fprintf(stderr, "load PORT MODEL STREAMS REQUESTS TOKENS STREAMED SECONDS [FILL]\n"), 2;
    port = atoi(argv[1]);
    model = argv[2];
    streams = atol(argv[3]);
    wanted = atol(argv[4]);
    tokens = atol(argv[5]);
    streamed = atoi(argv[6]);
    long seconds = atol(argv[7]);
    if (argc > 8) fill = atol(argv[8]);
    if (streams < 1 || wanted < 1 || tokens < 1 || seconds < 1 || fill < 1) fail("counts must be positive");
    calling = strchr(model, 'c') != NULL;
    if (calling && !streamed) fail("a call is only made in a stream");
    if (strpbrk(model, "jc") && tokens < DOCUMENT_MIN) fail("a JSON document has %d tokens at least", DOCUMENT_MIN);
    if (calling) {
        sprintf(format, ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"note\",\"parameters\":%s}}]", SCHEMA);
    } else if (strchr(model, 'j')) {
        sprintf(format, ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"rows\",\"schema\":%s}}", SCHEMA);
    }
    first_us = room(NULL, sizeof(double) * (size_t)wanted);
    request_us = room(NULL, sizeof(double) * (size_t)wanted);
    gaps_us = room(NULL, sizeof(double) * (size_t)(wanted * tokens));
    prompt = room(NULL, (size_t)fill + PIECE_MAX);
    struct text text;
    text_seed(&text, 42);
    long filled = 0;
    while (filled < fill) {
        char piece[PIECE_MAX];
        size_t size = text_next(&text, piece);
        if (memchr(piece, '\n', size) || memchr(piece, '"', size)) continue;
        memcpy(prompt + filled, piece, size);
        filled += (long)size;
    }
    prompt[filled] = 0;

    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct connection *all = room(NULL, sizeof *all * (size_t)streams);
    memset(all, 0, sizeof *all * (size_t)streams);
    for (long i = 0; i < streams; i++) {
        all[i].fd = connected();
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = &all[i]};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, all[i].fd, &e);
    }
    alarm((unsigned)seconds); /* ends it by a signal, so its exit code tells */
    int64_t began = now_ns();
    for (long i = 0; i < streams; i++) begin(&all[i]);
    struct epoll_event ready[256];
    char *data = room(NULL, READ_MAX);
    while (ended < wanted) {
        int count = epoll_wait(epoll_fd, ready, 256, -1);
        for (int i = 0; i < count; i++) {
            struct connection *c = ready[i].data.ptr;
            if (ready[i].events & EPOLLOUT) push(c);
            if (!(ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))) continue;
            ssize_t n = recv(c->fd, data, READ_MAX, MSG_DONTWAIT);
            if (n < 0 && errno == EAGAIN) continue;
            if (n <= 0 && c->busy) fail("the connection ended in mid-answer");
            if (n <= 0) { /* it has no more to do, and its server has waited long enough */
                close(c->fd);
                continue;
            }
            seen.bytes += (unsigned long long)n;
            seen.reads++;
            take(c, data, (size_t)n);
        }
    }
    double wall = (double)(now_ns() - began) / 1e9;
    struct rusage cpu;
    getrusage(RUSAGE_SELF, &cpu);
    double used = (double)(cpu.ru_utime.tv_sec + cpu.ru_stime.tv_sec) + (double)(cpu.ru_utime.tv_usec + cpu.ru_stime.tv_usec) / 1e6;
    printf("{\"requests\":%ld,\"chunks\":%ld,\"events\":%ld,\"reads\":%ld,\"bytes\":%llu,\"wall_s\":%.6f,\"cpu_s\":%.6f",
           seen.requests, seen.requests * tokens, seen.events, seen.reads, seen.bytes, wall, used);
    quantiles("first_us", first_us, first_count);
    quantiles("gap_us", gaps_us, gap_count);
    quantiles("request_us", request_us, (size_t)ended);
    puts("}");
    return 0;
}
