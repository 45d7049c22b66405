/*
 * One writer with asynchronous direct I/O beside two buffered readers: direct_io FILE SECONDS.
 *
 * The writer fills a block of 640 KiB with the number of the write, again and again, and publishes the number once the write
 * is complete. A reader takes the published number, reads the block, and must find no older one. Exits with 1 if it does, or
 * if a read after the last write does not show that one.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 640 * 1024, BLOCKS = 8, READERS = 2, ALIGNMENT = 4096 };

static atomic_uint complete[BLOCKS];
static atomic_bool is_over;
static atomic_ulong reads, stale;
static int buffered;

static void fail(const char *what)
{
    perror(what);
    exit(2);
}

static uint32_t *aligned_block(void)
{
    void *block;
    if (posix_memalign(&block, ALIGNMENT, BLOCK))
        fail("posix_memalign");
    return block;
}

/* Whether all of a block is from a write no older than `least`. */
static int is_current(int block, uint32_t *into, uint32_t least)
{
    if (pread(buffered, into, BLOCK, (off_t)block * BLOCK) != BLOCK)
        fail("pread");
    for (size_t word = 0; word < BLOCK / sizeof *into; word++)
        if (into[word] < least)
            return 0;
    return 1;
}

static void *reader(void *seed)
{
    unsigned state = (unsigned)(uintptr_t)seed;
    uint32_t *into = aligned_block();
    while (!is_over) {
        int block = rand_r(&state) % BLOCKS;
        uint32_t least = complete[block];
        if (!is_current(block, into, least))
            stale++;
        reads++;
    }
    free(into);
    return NULL;
}

static void write_block(aio_context_t context, int direct, int block, uint32_t *from, uint32_t number)
{
    for (size_t word = 0; word < BLOCK / sizeof *from; word++)
        from[word] = number;
    struct iocb write = {
        .aio_fildes = (uint32_t)direct,
        .aio_lio_opcode = IOCB_CMD_PWRITE,
        .aio_buf = (uintptr_t)from,
        .aio_nbytes = BLOCK,
        .aio_offset = (off_t)block * BLOCK,
    };
    struct iocb *list[] = {&write};
    struct io_event event;
    if (syscall(SYS_io_submit, context, 1, list) != 1)
        fail("io_submit");
    if (syscall(SYS_io_getevents, context, 1, 1, &event, NULL) != 1)
        fail("io_getevents");
    if (event.res != BLOCK) {
        fprintf(stderr, "a write of %d bytes came to %lld\n", BLOCK, (long long)event.res);
        exit(2);
    }
    complete[block] = number;
}

int main(int count, char **words)
{
    if (count != 3)
        return 2;
    int direct = open(words[1], O_RDWR | O_CREAT | O_DIRECT, 0644);
    if (direct < 0)
        fail("open");
    buffered = open(words[1], O_RDONLY);
    uint32_t *from = aligned_block();
    memset(from, 0, BLOCK);
    for (int block = 0; block < BLOCKS; block++)
        if (pwrite(direct, from, BLOCK, (off_t)block * BLOCK) != BLOCK)
            fail("pwrite");
    aio_context_t context = 0;
    if (syscall(SYS_io_setup, 1, &context))
        fail("io_setup");
    pthread_t threads[READERS];
    for (uintptr_t i = 0; i < READERS; i++)
        if (pthread_create(&threads[i], NULL, reader, (void *)(i + 1)))
            fail("pthread_create");
    time_t end = time(NULL) + atoi(words[2]);
    unsigned state = 42;
    uint32_t number = 0;
    while (time(NULL) < end && !stale)
        write_block(context, direct, rand_r(&state) % BLOCKS, from, ++number);
    is_over = 1;
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    for (int block = 0; block < BLOCKS; block++)
        if (!is_current(block, from, complete[block]))
            stale++;
    printf("%u writes, %lu reads, %lu of them stale\n", number, reads, stale);
    return stale != 0;
}
