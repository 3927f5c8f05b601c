/* The text that the engine sends and the load generator expects: English words from a fixed list, taken by a seeded
 * generator, cut into pieces of about four characters as a tokenizer would. Both sides make it from the seed alone.
 *
 * A model with a j in its name answers with a JSON document under SCHEMA instead: rows of a number and a note of such
 * words, whole with the last piece. One with a c in its name calls a tool with that document as its arguments. */
#ifndef BENCH_TEXT_H
#define BENCH_TEXT_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { PIECE_MAX = 32, DOCUMENT_MIN = 16 /* pieces */ };

static const char *const WORDS[] = {
    "the", "of", "and", "to", "in", "a", "is", "that", "for", "it", "was", "on", "are", "as", "with", "they", "be", "at",
    "one", "have", "this", "from", "or", "had", "by", "but", "some", "what", "there", "we", "can", "out", "other", "were",
    "all", "your", "when", "up", "use", "word", "how", "said", "an", "each", "she", "which", "do", "their", "time", "if",
    "will", "way", "about", "many", "then", "them", "would", "write", "like", "so", "these", "her", "long", "make",
    "thing", "see", "him", "two", "has", "look", "more", "day", "could", "go", "come", "did", "my", "sound", "no", "most",
    "number", "who", "over", "know", "water", "than", "call", "first", "people", "may", "down", "side", "been", "now",
    "find", "any", "new", "work", "part", "take", "get", "place", "made", "live", "where", "after", "back", "little",
    "only", "round", "man", "year", "came", "show", "every", "good", "me", "give", "our", "under", "name", "very",
    "through", "just", "form", "much", "great", "think", "say", "help", "low", "line", "before", "turn", "cause", "same",
    "mean", "differ", "move", "right", "boy", "old", "too", "does", "tell", "sentence", "set", "three", "want", "air",
    "well", "also", "play", "small", "end", "put", "home", "read", "hand", "port", "large", "spell", "add", "even", "land",
    "here", "must", "big", "high", "such", "follow", "act", "why", "ask", "men", "change", "went", "light", "kind", "off",
    "need", "house", "picture", "try", "us", "again", "animal", "point", "mother", "world", "near", "build", "self",
    "earth", "father", "head", "stand", "own", "page", "should", "country", "found", "answer", "school", "grow", "study",
    "still", "learn", "plant", "cover", "food", "sun", "four", "thought", "let", "keep", "eye", "never", "last", "door",
    "between", "city", "tree", "cross", "since", "hard", "start", "might", "story", "saw", "far", "sea", "draw", "left",
    "late", "run", "while", "press", "close", "night", "real", "life", "few", "stop", "open", "seem", "together", "next",
    "white", "children", "begin", "got", "walk", "example", "ease", "paper", "often", "always", "music", "those", "both",
    "mark", "book", "letter", "until", "mile", "river", "car", "feet", "care", "second", "group", "carry", "took", "rain",
    "eat", "room", "friend", "began", "idea", "fish", "mountain", "north", "once", "base", "hear", "horse", "cut", "sure",
    "watch", "color", "face", "wood", "main", "caf\xc3\xa9", "Z\xc3\xbcrich", "memory", "kernel", "request", "latency",
    "throughput", "distributed", "scheduler", "attention", "quantization", "transformer", "deterministic",
};
enum { WORD_COUNT = sizeof WORDS / sizeof WORDS[0] };

static const char SCHEMA[] =
    "{\"type\":\"object\",\"properties\":{\"rows\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":"
    "{\"id\":{\"type\":\"integer\",\"minimum\":0},\"note\":{\"type\":\"string\",\"maxLength\":4000}},"
    "\"required\":[\"id\",\"note\"],\"additionalProperties\":false}}},\"required\":[\"rows\"],\"additionalProperties\":false}";

struct text {
    uint64_t state;
    const char *rest; /* the second half of a long word, or a mark that follows */
    int words;        /* in this sentence so far */
    int length;       /* of this sentence */
    long left;        /* pieces of the document, this one included; 0: it is none */
    int place;        /* in the row; in front of the first one it is negative */
};

static inline uint32_t text_random(struct text *t, uint32_t below) { /* splitmix64 */
    uint64_t z = (t->state += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return (uint32_t)((z ^ (z >> 31)) >> 33) % below;
}

static inline void text_seed(struct text *t, uint64_t seed) {
    *t = (struct text){.state = seed * 0xd1342543de82ef95ULL + 1};
    t->length = 5 + (int)text_random(t, 14);
}

static inline void text_seed_for(struct text *t, uint64_t seed, const char *model, long count) {
    text_seed(t, seed);
    if (strpbrk(model, "jc")) t->left = count, t->place = -2;
}

static inline size_t text_document(struct text *t, char out[PIECE_MAX]) {
    static const char *const OPEN[] = {"{\"rows", "\":["}, *const ROW[] = {"{\"", "id", "\":", "", ",\"", "note", "\":\""};
    enum { HEAD = sizeof ROW / sizeof ROW[0] };
    const char *piece = ROW[0];
    int place = t->place++;
    if (t->left-- == 1) piece = "\"}]}";
    else if (place < 0) piece = OPEN[place + 2];
    else if (place == 3) return (size_t)sprintf(out, "%u", (unsigned)text_random(t, 1000));
    else if (place < HEAD) piece = ROW[place];
    else if (place > HEAD + 4 && t->left > HEAD + 4 && text_random(t, 8) == 0) piece = "\"},", t->place = 0;
    else {
        size_t size = strlen(piece = WORDS[text_random(t, WORD_COUNT)]);
        out[0] = ' ';
        memcpy(out + 1, piece, size);
        return size + 1;
    }
    memcpy(out, piece, strlen(piece));
    return strlen(piece);
}

/* The next piece, as UTF-8 without a terminating zero. Returns its length in bytes. */
static inline size_t text_next(struct text *t, char out[PIECE_MAX]) {
    size_t size;
    if (t->left) return text_document(t, out);
    if (t->rest) {
        size = strlen(t->rest);
        memcpy(out, t->rest, size);
        t->rest = NULL;
        return size;
    }
    if (t->words == t->length) {
        static const char *const ENDS[] = {".", ".", ".", ".", "?", "!", ".\n\n", ".\"", ":"};
        const char *end = ENDS[text_random(t, sizeof ENDS / sizeof ENDS[0])];
        t->words = 0;
        t->length = 5 + (int)text_random(t, 14);
        size = strlen(end);
        memcpy(out, end, size);
        return size;
    }
    const char *word = WORDS[text_random(t, WORD_COUNT)];
    size_t whole = strlen(word), take = whole;
    if (whole > 7) take = whole / 2; /* pure ASCII, all of them */
    else if (t->words > 2 && t->words + 2 < t->length && text_random(t, 12) == 0) t->rest = ",";
    size = 0;
    out[size++] = ' ';
    memcpy(out + size, word, take);
    if (t->words == 0 && word[0] >= 'a' && word[0] <= 'z') out[size] = (char)(word[0] - 32);
    if (take < whole) t->rest = word + take;
    t->words++;
    return size + take;
}

#endif
