/*
 * File handles, as an NFS server keeps them: handles save FILE NAME..., then handles open DIR FILE.
 *
 * The first writes the handles of some names into FILE. The second opens each handle in the file system of the directory DIR,
 * and prints the path that the kernel gives for it, or the number of the error.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_BYTES = 64 };

struct handle {
    struct file_handle head;
    unsigned char rest[MOST_BYTES];
};

static void fail(const char *what)
{
    perror(what);
    exit(2);
}

static int save(const char *file, char **names)
{
    FILE *out = fopen(file, "w");
    if (!out)
        fail(file);
    for (; *names; names++) {
        struct handle handle = {.head.handle_bytes = MOST_BYTES};
        int mount;
        if (name_to_handle_at(AT_FDCWD, *names, &handle.head, &mount, 0))
            fail(*names);
        if (fwrite(&handle, sizeof handle, 1, out) != 1)
            fail(file);
    }
    return fclose(out) != 0;
}

static int open_all(const char *dir, const char *file)
{
    int mount = open(dir, O_RDONLY);
    FILE *in = fopen(file, "r");
    struct handle handle;
    if (mount < 0 || !in)
        fail(file);
    while (fread(&handle, sizeof handle, 1, in) == 1) {
        char link[64], path[4096];
        int fd = open_by_handle_at(mount, &handle.head, O_RDONLY);
        if (fd < 0) {
            printf("error %d\n", errno);
            continue;
        }
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t len = readlink(link, path, sizeof path - 1);
        path[len < 0 ? 0 : len] = 0;
        char text[64] = "";
        ssize_t count = read(fd, text, sizeof text - 1);
        printf("%s%s%s\n", path, count > 0 ? " " : "", text);
        close(fd);
    }
    return 0;
}

int main(int count, char **words)
{
    if (count > 3 && !strcmp(words[1], "save"))
        return save(words[2], words + 3);
    if (count == 4 && !strcmp(words[1], "open"))
        return open_all(words[2], words[3]);
    return 2;
}
