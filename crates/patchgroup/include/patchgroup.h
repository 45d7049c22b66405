/* Patchgroups: order on the disk without waiting.
 *
 * Frost, Mammarella, Kohler and others, "Generalized File System Dependencies", SOSP 2007, section 5.
 * Link with -lpatchgroup. Every function returns -1 and sets errno where it fails.
 *
 * A group takes its dependencies first (pg_depend), then it is engaged, any number of times; once something depends on it, it is sealed
 * and takes neither (EINVAL). What is done by a process that has the group's descriptor open belongs to the group while it is
 * engaged. Descriptors are copied by fork, kept over exec, and closed at exit; engagement belongs to the open description, as a
 * file's offset does. Memory mappings: msync or munmap before pg_disengage.
 *
 * On a file system without patchgroups pg_depend, pg_advance and pg_sync call syncfs, so that the order holds all the same.
 */
#ifndef PATCHGROUP_H
#define PATCHGROUP_H

#ifdef __cplusplus
extern "C" {
#endif

typedef int pg_t;

/* 1 where the file system that holds path (the current directory where NULL) has patchgroups, else 0. */
int pg_supported(const char *path);

/* A new group, of the file system of the current directory or of the one that holds path. */
pg_t pg_create(void);
pg_t pg_create_at(const char *path);

/* Everything done under after reaches the disk no earlier than everything done under before. EBUSY where before is engaged. */
int pg_depend(pg_t after, pg_t before);

int pg_engage(pg_t group);
int pg_disengage(pg_t group);

/* What is done under the group from now on comes after everything that was done under it before; it may be engaged. As a new group that
 * depends on this one and takes its place, in one call. */
int pg_advance(pg_t group);

/* Puts everything done under the group onto stable storage, and what it comes after. EIO where the device failed. */
int pg_sync(pg_t group);

int pg_close(pg_t group);

/* A name for people, up to 200 bytes. */
int pg_label(pg_t group, const char *name);

/* Each operation under the group comes after the one before it. EOPNOTSUPP where there are no patchgroups. */
int pg_linear(pg_t group);

/* 1 where everything done under the group is on stable storage, 0 where not or where nobody knows. */
int pg_durable(pg_t group);

/* Waits for that, without having anything written. */
int pg_wait(pg_t group);

/* A descriptor that poll shows as readable once everything done under the group so far is on stable storage; close it afterwards. */
int pg_notify(pg_t group);

#ifdef __cplusplus
}
#endif

#endif
