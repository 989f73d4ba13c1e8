/*
 * LevelDB's usual workloads (those of its db_bench), with every value checked.
 *
 *     leveldb DATABASE WORKLOAD COUNT
 *
 *     fill-sequential   a new database; COUNT keys in order
 *     fill-random       a new database; COUNT keys in scrambled order
 *     fill-sync         a new database; COUNT keys, each synced before the next
 *     read-sequential   walks the database: exactly COUNT keys, in order, with their values
 *     read-random       asks for COUNT keys in scrambled order, and for as many that do not exist
 *     delete            removes every second key in scrambled order, then compacts
 *     read-deleted      what `delete` must have left, by walking and by asking
 *
 * The key and value of number i are functions of i alone. Each workload opens the database anew,
 * prints one line that depends on nothing else than COUNT, and ends with status 1 at the first
 * thing that is not as it must be.
 */
#include <leveldb/db.h>
#include <leveldb/iterator.h>
#include <leveldb/options.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

namespace {

using leveldb::DB;
using leveldb::Slice;
using leveldb::Status;

constexpr size_t VALUE_LENGTH = 100;

[[noreturn]] void fail(const std::string &what)
{
    std::fprintf(stderr, "leveldb: %s\n", what.c_str());
    std::exit(1);
}

void must(const Status &status, const char *what)
{
    if (!status.ok())
        fail(std::string(what) + ": " + status.ToString());
}

/* Sixteen digits, so that the order of keys is that of numbers. */
std::string key_of(uint64_t number)
{
    const std::string digits = std::to_string(number);
    return std::string(digits.size() < 16 ? 16 - digits.size() : 0, '0') + digits;
}

/* Bytes that do not compress, so that what is written is what was given. */
std::string value_of(uint64_t number)
{
    std::string value(VALUE_LENGTH, '\0');
    uint64_t state = number * 0x9e3779b97f4a7c15u + 1;
    for (char &byte : value) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        byte = static_cast<char>(state >> 32);
    }
    return value;
}

/* Takes 0..count to 0..count, each once: a prime that divides no count of the demo's. */
uint64_t scrambled(uint64_t i, uint64_t count)
{
    return (i * 2654435761u + count / 3) % count;
}

std::unique_ptr<DB> open(const std::string &name, bool fresh)
{
    leveldb::Options options;
    options.create_if_missing = fresh;
    options.error_if_exists = fresh;
    options.paranoid_checks = true;
    DB *database = nullptr;
    must(DB::Open(options, name, &database), "open");
    return std::unique_ptr<DB>(database);
}

void fill(DB &database, uint64_t count, bool in_order, bool sync)
{
    leveldb::WriteOptions options;
    options.sync = sync;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t number = in_order ? i : scrambled(i, count);
        must(database.Put(options, key_of(number), value_of(number)), "put");
    }
}

bool is_deleted(uint64_t number)
{
    return number % 2 == 1;
}

leveldb::ReadOptions checked()
{
    leveldb::ReadOptions options;
    options.verify_checksums = true;
    return options;
}

/* Walks the whole database; returns the number of keys found. */
uint64_t walk(DB &database, uint64_t count, bool halved)
{
    std::unique_ptr<leveldb::Iterator> at(database.NewIterator(checked()));
    uint64_t found = 0, number = 0;
    for (at->SeekToFirst(); at->Valid(); at->Next(), number++, found++) {
        while (halved && is_deleted(number))
            number++;
        if (number >= count || at->key() != Slice(key_of(number)))
            fail("found key " + at->key().ToString() + " where " + key_of(number) + " must be");
        if (at->value() != Slice(value_of(number)))
            fail("the value of " + key_of(number) + " is wrong");
    }
    must(at->status(), "walk");
    const uint64_t expected = halved ? (count + 1) / 2 : count;
    if (found != expected)
        fail("found " + std::to_string(found) + " keys of " + std::to_string(expected));
    return found;
}

/* Asks for every key in scrambled order, and for one beside each that was never there. */
uint64_t ask(DB &database, uint64_t count, bool halved)
{
    std::string value;
    uint64_t found = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t number = scrambled(i, count);
        const std::string key = key_of(number);
        const Status status = database.Get(checked(), key, &value);
        if (halved && is_deleted(number)) {
            if (!status.IsNotFound())
                fail("deleted key " + key + ": " + status.ToString());
        } else {
            must(status, key.c_str());
            if (value != value_of(number))
                fail("the value of " + key + " is wrong");
            found++;
        }
        if (!database.Get(checked(), key + "x", &value).IsNotFound())
            fail("found a key that was never written: " + key + "x");
    }
    return found;
}

void remove_half(DB &database, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t number = scrambled(i, count);
        if (is_deleted(number))
            must(database.Delete(leveldb::WriteOptions(), key_of(number)), "delete");
    }
    database.CompactRange(nullptr, nullptr);
}

} // namespace

int main(int argument_count, char **arguments)
{
    if (argument_count != 4) {
        std::fprintf(stderr, "usage: leveldb DATABASE WORKLOAD COUNT\n");
        return 2;
    }
    const std::string workload = arguments[2];
    const uint64_t count = std::strtoull(arguments[3], nullptr, 10);
    const bool fills = workload.rfind("fill-", 0) == 0;
    std::unique_ptr<DB> database = open(arguments[1], fills);
    uint64_t found = count;
    if (workload == "fill-sequential")
        fill(*database, count, true, false);
    else if (workload == "fill-random")
        fill(*database, count, false, false);
    else if (workload == "fill-sync")
        fill(*database, count, true, true);
    else if (workload == "read-sequential")
        found = walk(*database, count, false);
    else if (workload == "read-random")
        found = ask(*database, count, false);
    else if (workload == "delete")
        remove_half(*database, count);
    else if (workload == "read-deleted")
        found = walk(*database, count, true) + ask(*database, count, true);
    else
        fail("no such workload: " + workload);
    std::printf("%s %s: %llu\n", workload.c_str(), arguments[3],
                static_cast<unsigned long long>(found));
    return 0;
}
