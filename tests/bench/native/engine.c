/* A dummy engine in vLLM's chunk shape: one thread, epoll, 127.0.0.1, no dependencies.
 *
 * engine            prints the port it took on one line, and serves until its standard input closes.
 *
 * The model of a request says how its chunks come, max_tokens how many there are, seed which text (text.h):
 *   pN    one chunk each N ms, the streams spread evenly over the interval
 *   sN    one chunk each N ms, all streams at the same moment, as an engine's steps do
 *   flat  one chunk a write, as fast as the socket takes them, the streams in turn
 * A j after it (s10j): the text is a JSON document; a c (s10c): it is the arguments of a tool call.
 * A request without "stream":true is answered whole, at once. Requests are trusted: they are searched, not parsed.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "text.h"

enum { MAX_FD = 4096, EVENT_MAX = 1024 };
enum pace { IDLE, PACED, FLAT };

struct connection {
    char *in; /* the request so far */
    size_t in_size, in_room;
    enum pace pace;
    int64_t due, interval; /* ns */
    long sent, count;
    bool usage, ready; /* the usage chunk was asked for; the socket takes more */
    struct text text;
    char model[32];
    unsigned long id;
    char *out; /* what the socket did not take */
    size_t out_size, out_at;
};

static struct connection *connections[MAX_FD];
static int highest, epoll_fd, working;
static unsigned long answers;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void drop(int fd) {
    struct connection *c = connections[fd];
    if (c->pace != IDLE) working--;
    free(c->in);
    free(c->out);
    free(c);
    connections[fd] = NULL;
    close(fd);
}

static void want_write(int fd, bool wanted) {
    struct epoll_event e = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.fd = fd};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, fd, &e);
    connections[fd]->ready = !wanted;
}

/* Send, and keep what does not fit. False when the peer is gone (the connection is then dropped). */
static bool put(int fd, const char *data, size_t size) {
    struct connection *c = connections[fd];
    ssize_t n = c->out_size ? 0 : send(fd, data, size, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) return drop(fd), false;
    if (n < 0) n = 0;
    if ((size_t)n == size) return true;
    c->out = realloc(c->out, c->out_size + size - (size_t)n);
    if (!c->out) die("realloc");
    memcpy(c->out + c->out_size, data + n, size - (size_t)n);
    c->out_size += size - (size_t)n;
    want_write(fd, true);
    return true;
}

static bool flush(int fd) {
    struct connection *c = connections[fd];
    while (c->out_at < c->out_size) {
        ssize_t n = send(fd, c->out + c->out_at, c->out_size - c->out_at, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) return true;
        if (n < 0) return drop(fd), false;
        c->out_at += (size_t)n;
    }
    c->out_at = c->out_size = 0;
    want_write(fd, false);
    return true;
}

static size_t escape(const char *piece, size_t size, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < size; i++) {
        char ch = piece[i];
        if (ch == '"' || ch == '\\') out[n++] = '\\', out[n++] = ch;
        else if (ch == '\n') out[n++] = '\\', out[n++] = 'n';
        else out[n++] = ch;
    }
    return n;
}

/* One event as one chunk of the transfer: "size CRLF data: {...} LF LF CRLF". */
static size_t event(const struct connection *c, const char *choices, size_t size, const char *more, char *out) {
    char body[EVENT_MAX];
    int n = snprintf(body, sizeof body,
                     "data: {\"id\":\"chatcmpl-%016lx\",\"object\":\"chat.completion.chunk\",\"created\":1796001484,"
                     "\"model\":\"%s\",\"choices\":[%.*s]%s}\n\n",
                     c->id, c->model, (int)size, choices, more);
    return (size_t)sprintf(out, "%x\r\n%.*s\r\n", (unsigned)n, n, body);
}

static bool calls(const struct connection *c) { return strchr(c->model, 'c') != NULL; }

static size_t text_event(struct connection *c, char *out) {
    static const char TEXT[] = "{\"index\":0,\"delta\":{\"content\":\"", CALL[] =
        "{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"";
    char piece[PIECE_MAX], choice[256];
    size_t size = text_next(&c->text, piece), n = (size_t)sprintf(choice, "%s", calls(c) ? CALL : TEXT);
    n += escape(piece, size, choice + n);
    n += (size_t)sprintf(choice + n, "\"%s},\"logprobs\":null,\"finish_reason\":null}", calls(c) ? "}}]" : "");
    return event(c, choice, n, "", out);
}

/* What a call begins with: its id and name. */
static size_t call_event(struct connection *c, char *out) {
    char choice[256];
    int n = snprintf(choice, sizeof choice,
                     "{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_%016lx\",\"type\":\"function\","
                     "\"function\":{\"name\":\"note\",\"arguments\":\"\"}}]},\"logprobs\":null,\"finish_reason\":null}", c->id);
    return event(c, choice, (size_t)n, "", out);
}

static size_t closing(struct connection *c, char *out) {
    char usage[128], last[128];
    int size = snprintf(last, sizeof last, "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"%s\",\"stop_reason\":null}",
                        calls(c) ? "tool_calls" : "stop");
    size_t n = event(c, last, (size_t)size, "", out);
    if (c->usage) {
        snprintf(usage, sizeof usage, ",\"usage\":{\"prompt_tokens\":57,\"total_tokens\":%ld,\"completion_tokens\":%ld}",
                 57 + c->count, c->count);
        n += event(c, "", 0, usage, out + n);
    }
    return n + (size_t)sprintf(out + n, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
}

/* The next chunk of a stream, and its end with the last one. */
static bool step(int fd) {
    struct connection *c = connections[fd];
    char data[5 * EVENT_MAX];
    size_t n = !c->sent && calls(c) ? call_event(c, data) : 0;
    n += text_event(c, data + n);
    if (++c->sent == c->count) {
        n += closing(c, data + n);
        c->pace = IDLE;
        working--;
    }
    return put(fd, data, n);
}

static const char *field(const char *body, const char *name) {
    const char *at = strstr(body, name);
    if (!at) return "";
    at += strlen(name);
    while (*at == ':' || *at == ' ') at++;
    return at;
}

static bool begin_stream(int fd) {
    static const char ROLE[] = "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}";
    struct connection *c = connections[fd];
    char data[2 * EVENT_MAX];
    int n = sprintf(data, "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                          "transfer-encoding: chunked\r\n\r\n");
    if (!put(fd, data, (size_t)n + event(c, ROLE, sizeof ROLE - 1, "", data + n))) return false;
    working++;
    if (c->model[0] == 'f') {
        c->pace = FLAT;
        return true;
    }
    int64_t now = now_ns();
    c->interval = atol(c->model + 1) * 1000000LL;
    c->pace = PACED;
    if (c->model[0] == 's') c->due = (now / c->interval + 1) * c->interval;
    else c->due = now + (int64_t)((double)(answers * 61803398875UL % 100000000000UL) / 1e11 * (double)c->interval);
    return true;
}

static bool whole(int fd) {
    struct connection *c = connections[fd];
    char *text = malloc((size_t)c->count * 2 * PIECE_MAX + 1), head[256], *body;
    if (!text) die("malloc");
    size_t n = 0;
    for (long i = 0; i < c->count; i++) {
        char piece[PIECE_MAX];
        size_t size = text_next(&c->text, piece);
        n += escape(piece, size, text + n);
    }
    int size = asprintf(&body,
                        "{\"id\":\"chatcmpl-%016lx\",\"object\":\"chat.completion\",\"created\":1796001484,\"model\":\"%s\","
                        "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"%.*s\",\"refusal\":null},"
                        "\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":null}],\"usage\":{\"prompt_tokens\":57,"
                        "\"total_tokens\":%ld,\"completion_tokens\":%ld}}",
                        c->id, c->model, (int)n, text, 57 + c->count, c->count);
    int head_size = sprintf(head, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n", size);
    char *all = malloc((size_t)(head_size + size));
    if (!all || size < 0) die("malloc");
    memcpy(all, head, (size_t)head_size);
    memcpy(all + head_size, body, (size_t)size);
    bool alive = put(fd, all, (size_t)(head_size + size));
    free(all);
    free(body);
    free(text);
    return alive;
}

/* A whole request is there: its body ends with a zero byte. */
static bool answer(int fd, const char *head, const char *body) {
    struct connection *c = connections[fd];
    if (!strncmp(head, "GET ", 4)) {
        static const char OK[] = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 52\r\n\r\n"
                                 "{\"object\":\"list\",\"data\":[{\"id\":\"s10\",\"object\":\"x\"}]}";
        return put(fd, OK, sizeof OK - 1);
    }
    const char *model = field(body, "\"model\""), *end = *model ? strchr(model + 1, '"') : NULL;
    if (!end || (size_t)(end - model) > sizeof c->model) {
        static const char BAD[] = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
        return put(fd, BAD, sizeof BAD - 1);
    }
    snprintf(c->model, sizeof c->model, "%.*s", (int)(end - model - 1), model + 1);
    const char *most = field(body, "\"max_tokens\"");
    if (!*most) most = field(body, "\"max_completion_tokens\"");
    c->count = atol(most) > 0 ? atol(most) : 16;
    c->sent = 0;
    c->usage = !strncmp(field(body, "\"include_usage\""), "true", 4);
    c->id = 0x8665674935fbad38UL + ++answers;
    text_seed_for(&c->text, strtoull(field(body, "\"seed\""), NULL, 10), c->model, c->count);
    return strncmp(field(body, "\"stream\""), "true", 4) ? whole(fd) : begin_stream(fd);
}

static bool requests(int fd) {
    struct connection *c = connections[fd];
    for (;;) {
        if (c->in_room - c->in_size < 65536) {
            c->in_room = c->in_size + 131072;
            if (!(c->in = realloc(c->in, c->in_room))) die("realloc");
        }
        ssize_t n = recv(fd, c->in + c->in_size, c->in_room - c->in_size - 1, 0);
        if (n < 0 && errno == EAGAIN) break;
        if (n <= 0) return drop(fd), false;
        c->in_size += (size_t)n;
    }
    while (c->pace == IDLE && c->in_size) {
        c->in[c->in_size] = 0;
        char *body = strstr(c->in, "\r\n\r\n");
        if (!body) break;
        *body = 0;
        body += 4;
        const char *length = strcasestr(c->in, "\r\ncontent-length:");
        size_t wanted = length ? strtoul(length + 17, NULL, 10) : 0, had = c->in_size - (size_t)(body - c->in);
        if (had < wanted) {
            body[-4] = '\r';
            break;
        }
        char after = body[wanted];
        body[wanted] = 0;
        if (!answer(fd, c->in, body)) return false;
        body[wanted] = after;
        c->in_size = had - wanted;
        memmove(c->in, body + wanted, c->in_size);
    }
    return true;
}

static void take(int listener) {
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), on = 1;
        if (fd < 0) return;
        if (fd >= MAX_FD) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (!(connections[fd] = calloc(1, sizeof(struct connection)))) die("calloc");
        connections[fd]->ready = true;
        struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e);
        if (fd > highest) highest = fd;
    }
}

/* Everything that is due. Returns when the next is, in ns; 0: at once; -1: not before something arrives. */
static int64_t run_due(void) {
    if (!working) return -1;
    int64_t now = now_ns(), next = INT64_MAX;
    for (int fd = 0; fd <= highest; fd++) {
        struct connection *c = connections[fd];
        if (!c || c->pace == IDLE) continue;
        if (c->pace == FLAT) {
            if (c->ready && step(fd) && c->pace == FLAT && c->ready) next = 0;
            continue;
        }
        if (c->due <= now) {
            c->due += c->interval;
            if (!step(fd) || c->pace == IDLE) continue;
        }
        if (c->due < next) next = c->due;
    }
    return next == INT64_MAX ? -1 : next;
}

int main(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) || listen(listener, 2048)) die("listen");
    getsockname(listener, (struct sockaddr *)&address, &size);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event e = {.events = EPOLLIN, .data.fd = listener}, ready[256];
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &e);
    e.data.fd = STDIN_FILENO;
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &e); /* refused for a file, which never closes */
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC); /* epoll's own timeout is too coarse */
    e.data.fd = timer;
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, timer, &e);
    for (;;) {
        int64_t next = run_due();
        if (next) {
            struct itimerspec at = {.it_value = {.tv_sec = next / 1000000000, .tv_nsec = next % 1000000000}};
            if (next > 0) timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
        }
        int n = epoll_wait(epoll_fd, ready, 256, next ? -1 : 0);
        for (int i = 0; i < n; i++) {
            int fd = ready[i].data.fd;
            if (fd == listener) take(listener);
            else if (fd == timer) {
                uint64_t times;
                if (read(timer, &times, sizeof times) < 0) continue;
            } else if (fd == STDIN_FILENO) {
                char byte;
                if (read(fd, &byte, 1) <= 0) return 0;
            } else {
                bool alive = true;
                if (ready[i].events & EPOLLOUT) alive = flush(fd);
                if (alive && ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) requests(fd);
            }
        }
    }
}
