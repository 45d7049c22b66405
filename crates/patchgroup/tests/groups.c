/* Writes "new", after it "flag", which it syncs, and after that "last", which it does not. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "patchgroup.h"

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "line %d: %s: errno %d\n", __LINE__, #what, errno); \
            exit(1); \
        } \
    } while (0)

static void make(const char *name, const char *text, size_t len)
{
    int fd = open(name, O_CREAT | O_WRONLY, 0644);
    CHECK(fd >= 0);
    CHECK(write(fd, text, len) == (ssize_t)len);
    CHECK(close(fd) == 0);
}

int main(void)
{
    CHECK(pg_supported(NULL) == 1);
    CHECK(pg_supported("/proc") == 0);
    pg_t first = pg_create(), second = pg_create_at("."), third = pg_create();
    CHECK(first >= 0 && second >= 0 && third >= 0);
    CHECK(pg_label(first, "first") == 0);

    CHECK(pg_engage(first) == 0);
    pid_t child = fork();
    if (child == 0) {
        make("new", "contents", 8);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(pg_depend(second, first) == -1 && errno == EBUSY);
    CHECK(pg_disengage(first) == 0);

    CHECK(pg_depend(second, first) == 0);
    CHECK(pg_engage(first) == -1 && errno == EINVAL);
    CHECK(pg_engage(second) == 0);
    make("flag", "", 0);
    CHECK(pg_disengage(second) == 0);

    CHECK(pg_depend(third, second) == 0);
    CHECK(pg_linear(third) == 0);
    CHECK(pg_engage(third) == 0);
    make("apart/last", "last", 4);
    CHECK(pg_disengage(third) == 0);

    CHECK(pg_durable(second) == 0);
    int told = pg_notify(second);
    CHECK(told >= 0);
    CHECK(pg_sync(second) == 0);
    struct pollfd fd = {told, POLLIN, 0};
    CHECK(poll(&fd, 1, 20000) == 1);
    CHECK(close(told) == 0);
    CHECK(pg_durable(second) == 1 && pg_wait(second) == 0);
    CHECK(pg_durable(third) == 0);
    CHECK(pg_advance(third) == 0 && pg_advance(-1) == -1);
    CHECK(pg_close(first) == 0 && pg_close(second) == 0 && pg_close(third) == 0);
    CHECK(pg_engage(-1) == -1 && errno == EBADF);
    return 0;
}
