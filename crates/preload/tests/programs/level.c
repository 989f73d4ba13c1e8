/* LevelDB, which reads its tables through maps: fill, overwrite, delete, compact, read again. */
#include <leveldb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEYS 30000
static char *failure;
static void check(const char *what) {
    if (failure) {
        printf("%s: %s\n", what, failure);
        exit(1);
    }
}
static void key_of(char *key, int i) { sprintf(key, "key%08d", (int)((i * 7919L) % KEYS)); }

int main(int argc, char **argv) {
    if (argc < 2 || chdir(argv[1])) return 9;
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, 1);
    leveldb_options_set_write_buffer_size(options, 256 << 10);
    leveldb_options_set_max_file_size(options, 1 << 20);
    leveldb_writeoptions_t *writing = leveldb_writeoptions_create();
    leveldb_readoptions_t *reading = leveldb_readoptions_create();
    leveldb_readoptions_set_verify_checksums(reading, 1);
    char key[32], value[200];
    for (int round = 0; round < 3; round++) {
        leveldb_t *db = leveldb_open(options, "db", &failure);
        check("open");
        for (int i = 0; i < KEYS; i++) {
            key_of(key, i);
            memset(value, 'a' + (i + round) % 26, sizeof value);
            if (round == 2 && i % 3 == 0)
                leveldb_delete(db, writing, key, strlen(key), &failure);
            else
                leveldb_put(db, writing, key, strlen(key), value, 100 + i % 100, &failure);
            check("change");
        }
        if (round == 1) leveldb_compact_range(db, NULL, 0, NULL, 0);
        long found = 0, bytes = 0, wrong = 0;
        for (int i = 0; i < KEYS; i++) {
            size_t length;
            key_of(key, i);
            char *got = leveldb_get(db, reading, key, strlen(key), &length, &failure);
            check("get");
            if (!got) continue;
            found++, bytes += length;
            wrong += got[length - 1] != 'a' + (i + round) % 26;
            leveldb_free(got);
        }
        leveldb_iterator_t *all = leveldb_create_iterator(db, reading);
        long seen = 0;
        for (leveldb_iter_seek_to_first(all); leveldb_iter_valid(all); leveldb_iter_next(all)) seen++;
        leveldb_iter_destroy(all);
        leveldb_close(db);
        printf("round %d: %ld found, %ld bytes, %ld wrong, %ld seen\n", round, found, bytes, wrong, seen);
    }
    return 0;
}
