/* SQLite without waiting: a VFS whose syncs are points of order.
 *
 * SQLite syncs to say "the journal before the database, the database before the journal's removal". On a mount with patchgroups this VFS
 * says that, and nobody waits: a commit returns at once, and after a crash the database is as some transaction left it, never
 * damaged. What was committed last may be missing until it was asked for:
 *
 *     PRAGMA backstitch_sync;              everything committed so far is on stable storage when this returns
 *     PRAGMA backstitch_durable = 1;       from now on each sync waits, as without this VFS; = 0: they no longer do (the default)
 *     PRAGMA backstitch_durable;           1 where syncs wait
 *     PRAGMA backstitch_supported;         1 where the database is on a mount with patchgroups
 *
 * Build it in the top directory of the source tree (Debian packages gcc, libsqlite3-dev, and Rust), and use it:
 *
 *     cargo build --release -p backstitch-patchgroup
 *     cc -O2 -fPIC -shared -I crates/patchgroup/include -o backstitch.so crates/patchgroup/sqlite/backstitch.c target/release/libpatchgroup.a -lpthread -ldl -lm
 *     sqlite3 -cmd '.load ./backstitch' -cmd '.open file:/mnt/my.db?vfs=backstitch'
 *
 * What it does: each database that is open for writing has a group, engaged for as long as it is open, and a sync of the database
 * or of its rollback journal is pg_advance() of that group. Everything the process does in that mount is in the group meanwhile.
 *
 * Where syncs wait nevertheless, as they always do:
 *   - On file systems without patchgroups.
 *   - With a write-ahead log: processes that share one write the database in turn without a moment at which this could see it.
 *   - Once where somebody else has written the database since this connection did (another process, or before it was opened): what they
 *     did is in no group of ours, so it is put onto stable storage before anything is done that must come after it.
 *   - Super-journals, of transactions over several databases.
 */
#include <fcntl.h>
#include <pthread.h>
#include <string.h>

#include <sqlite3ext.h>

#include "patchgroup.h"

SQLITE_EXTENSION_INIT1

/* A file of ours; the real one lies behind it. */
typedef struct File File;
struct File {
    sqlite3_file base;
    sqlite3_file *real;
    File *database;            /* Of a rollback journal or a write-ahead log: the database. */
    int is_log;                /* It is a write-ahead log. */
    /* Of a database: */
    pg_t group;                /* -1: its syncs are the real ones. */
    int durable;               /* Somebody wants them to wait. */
    int logs;                  /* Write-ahead logs of it that are open. */
    int writing;               /* It has a lock that allows changes. */
    int has_counter;
    unsigned char counter[4];  /* The change counter as we wrote it last. */
    const char *journal;       /* Its rollback journal's name. */
    File *next;
};

static struct {
    sqlite3_vfs base;
    sqlite3_vfs *real;
} vfs;

/* The databases that have a group, by their journals' names. */
static pthread_mutex_t databases_lock = PTHREAD_MUTEX_INITIALIZER;
static File *databases;

#define REAL(f) (((File *)(f))->real)
#define COUNTER_OFFSET 24

/* The group in which syncs of a file are points of order, or -1. */
static pg_t ordering(const File *file) {
    const File *database = file->database ? file->database : file;
    return database->durable || database->logs ? -1 : database->group;
}

static int in_directory_of(const char *path, int (*what)(const char *)) {
    char directory[4096];
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0;
    if (length >= sizeof directory) return what == pg_supported ? 0 : -1;
    memcpy(directory, path, length);
    directory[length] = 0;
    return what(slash == path ? "/" : slash ? directory : ".");
}

/* Never through the database itself: closing a descriptor of it would give up this process's locks on it. */
static pg_t group_for(const char *path) {
    pg_t group;
    if (in_directory_of(path, pg_supported) != 1) return -1;
    group = in_directory_of(path, pg_create_at);
    if (group < 0) return -1;
    if (fcntl(group, F_SETFD, FD_CLOEXEC) < 0 || pg_engage(group) < 0) {
        pg_close(group);
        return -1;
    }
    return group;
}

/* A lock that allows changes was taken: what others did since we wrote comes before what we will do. */
static int begin_writing(File *file) {
    unsigned char now[4];
    int rc;
    if (file->writing || ordering(file) < 0) return SQLITE_OK;
    rc = file->real->pMethods->xRead(file->real, now, 4, COUNTER_OFFSET);
    if (rc == SQLITE_IOERR_SHORT_READ) memset(now, 0, 4);
    else if (rc != SQLITE_OK) return rc;
    if (!file->has_counter || memcmp(now, file->counter, 4) != 0) {
        rc = file->real->pMethods->xSync(file->real, SQLITE_SYNC_NORMAL);
        if (rc != SQLITE_OK) return rc;
        memcpy(file->counter, now, 4);
        file->has_counter = 1;
    }
    file->writing = 1;
    return SQLITE_OK;
}

static int file_close(sqlite3_file *f) {
    File *file = (File *)f, **at;
    int rc = file->real->pMethods ? file->real->pMethods->xClose(file->real) : SQLITE_OK;
    if (file->database) {
        file->database->logs -= file->is_log;
        return rc;
    }
    if (file->group < 0) return rc;
    pthread_mutex_lock(&databases_lock);
    for (at = &databases; *at; at = &(*at)->next) {
        if (*at == file) {
            *at = file->next;
            break;
        }
    }
    pthread_mutex_unlock(&databases_lock);
    pg_close(file->group);
    return rc;
}

static int file_write(sqlite3_file *f, const void *bytes, int amount, sqlite3_int64 offset) {
    File *file = (File *)f;
    int rc = file->real->pMethods->xWrite(file->real, bytes, amount, offset);
    if (rc == SQLITE_OK && file->group >= 0 && offset == 0 && amount >= COUNTER_OFFSET + 4) {
        memcpy(file->counter, (const char *)bytes + COUNTER_OFFSET, 4);
        file->has_counter = 1;
    }
    return rc;
}

static int file_sync(sqlite3_file *f, int flags) {
    File *file = (File *)f;
    pg_t group = ordering(file);
    if (group >= 0 && pg_advance(group) == 0) return SQLITE_OK;
    return file->real->pMethods->xSync(file->real, flags);
}

static int file_lock(sqlite3_file *f, int level) {
    File *file = (File *)f;
    int rc = file->real->pMethods->xLock(file->real, level);
    if (rc != SQLITE_OK || level < SQLITE_LOCK_RESERVED || file->group < 0) return rc;
    rc = begin_writing(file);
    if (rc != SQLITE_OK) file->real->pMethods->xUnlock(file->real, SQLITE_LOCK_SHARED);
    return rc;
}

static int file_unlock(sqlite3_file *f, int level) {
    File *file = (File *)f;
    if (level < SQLITE_LOCK_RESERVED) file->writing = 0;
    return file->real->pMethods->xUnlock(file->real, level);
}

/* Everything done so far; then syncs wait, or no longer. */
static int set_durable(File *file, int durable) {
    if (durable == file->durable) return SQLITE_OK;
    if (durable) {
        if (pg_sync(file->group) < 0 || pg_disengage(file->group) < 0) return SQLITE_IOERR_FSYNC;
    } else {
        if (pg_engage(file->group) < 0) return SQLITE_ERROR;
        /* What was done meanwhile is in no group. */
        file->has_counter = 0;
    }
    file->durable = durable;
    return SQLITE_OK;
}

static int is_on(const char *word) {
    return !sqlite3_stricmp(word, "1") || !sqlite3_stricmp(word, "on") || !sqlite3_stricmp(word, "yes") ||
           !sqlite3_stricmp(word, "true");
}

/* SQLITE_NOTFOUND where it is not one of ours. */
static int pragma(File *file, char **words) {
    const char *name = words[1], *value = words[2];
    if (!sqlite3_stricmp(name, "backstitch_supported")) {
        words[0] = sqlite3_mprintf("%d", file->group >= 0);
        return SQLITE_OK;
    }
    if (!sqlite3_stricmp(name, "backstitch_sync")) {
        /* Where syncs wait there is nothing left but, perhaps, the removal of the last journal. */
        int rc = file->group >= 0 && pg_sync(file->group) < 0 ? SQLITE_IOERR_FSYNC : SQLITE_OK;
        words[0] = sqlite3_mprintf(rc == SQLITE_OK ? "ok" : "the device failed");
        return rc;
    }
    if (sqlite3_stricmp(name, "backstitch_durable")) return SQLITE_NOTFOUND;
    if (value && file->group < 0 && !is_on(value)) {
        words[0] = sqlite3_mprintf("there are no patchgroups where the database is: syncs wait");
        return SQLITE_ERROR;
    }
    if (value && file->group >= 0) {
        int rc = set_durable(file, is_on(value));
        if (rc != SQLITE_OK) return rc;
    }
    words[0] = sqlite3_mprintf("%d", ordering(file) < 0);
    return SQLITE_OK;
}

static int file_control(sqlite3_file *f, int op, void *argument) {
    File *file = (File *)f;
    if (op == SQLITE_FCNTL_PRAGMA && !file->database) {
        int rc = pragma(file, argument);
        if (rc != SQLITE_NOTFOUND) return rc;
    }
    return file->real->pMethods->xFileControl(file->real, op, argument);
}

/* In a group a file is never longer on the disk than what was written to it: the journal needs one sync, not two. */
static int file_traits(sqlite3_file *f) {
    int traits = REAL(f)->pMethods->xDeviceCharacteristics(REAL(f));
    return ordering((File *)f) < 0 ? traits : traits | SQLITE_IOCAP_SAFE_APPEND;
}

/* What is as it is. */
static int file_read(sqlite3_file *f, void *into, int amount, sqlite3_int64 offset) {
    return REAL(f)->pMethods->xRead(REAL(f), into, amount, offset);
}
static int file_truncate(sqlite3_file *f, sqlite3_int64 size) {
    return REAL(f)->pMethods->xTruncate(REAL(f), size);
}
static int file_size(sqlite3_file *f, sqlite3_int64 *size) { return REAL(f)->pMethods->xFileSize(REAL(f), size); }
static int file_reserved(sqlite3_file *f, int *is) { return REAL(f)->pMethods->xCheckReservedLock(REAL(f), is); }
static int file_sector(sqlite3_file *f) { return REAL(f)->pMethods->xSectorSize(REAL(f)); }
static int shm_map(sqlite3_file *f, int region, int size, int extend, void volatile **at) {
    return REAL(f)->pMethods->xShmMap(REAL(f), region, size, extend, at);
}
static int shm_lock(sqlite3_file *f, int offset, int n, int flags) {
    return REAL(f)->pMethods->xShmLock(REAL(f), offset, n, flags);
}
static void shm_barrier(sqlite3_file *f) { REAL(f)->pMethods->xShmBarrier(REAL(f)); }
static int shm_unmap(sqlite3_file *f, int remove) { return REAL(f)->pMethods->xShmUnmap(REAL(f), remove); }
static int file_fetch(sqlite3_file *f, sqlite3_int64 offset, int amount, void **at) {
    return REAL(f)->pMethods->xFetch(REAL(f), offset, amount, at);
}
static int file_unfetch(sqlite3_file *f, sqlite3_int64 offset, void *at) {
    return REAL(f)->pMethods->xUnfetch(REAL(f), offset, at);
}

#define METHODS(version)                                                                                            \
    {                                                                                                               \
        version, file_close, file_read, file_write, file_truncate, file_sync, file_size, file_lock, file_unlock,    \
            file_reserved, file_control, file_sector, file_traits, shm_map, shm_lock, shm_barrier, shm_unmap,       \
            file_fetch, file_unfetch                                                                                \
    }
/* As many as the real file has. */
static const sqlite3_io_methods methods[] = {METHODS(1), METHODS(2), METHODS(3)};

static int vfs_open(sqlite3_vfs *self, sqlite3_filename name, sqlite3_file *f, int flags, int *out) {
    File *file = (File *)f;
    int rc, version, opened = 0;
    (void)self;
    memset(file, 0, sizeof *file);
    file->group = -1;
    file->real = (sqlite3_file *)(file + 1);
    rc = vfs.real->xOpen(vfs.real, name, file->real, flags, &opened);
    if (out) *out = opened;
    if (!file->real->pMethods) return rc;
    version = file->real->pMethods->iVersion;
    file->base.pMethods = &methods[(version > 3 ? 3 : version) - 1];
    if (rc != SQLITE_OK || !name) return rc;
    if (flags & (SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL)) {
        /* The database is ours: it was opened through this VFS. */
        file->database = (File *)sqlite3_database_file_object(name);
        file->is_log = (flags & SQLITE_OPEN_WAL) != 0;
        file->database->logs += file->is_log;
    } else if ((flags & SQLITE_OPEN_MAIN_DB) && (opened & SQLITE_OPEN_READWRITE)) {
        file->group = group_for(name);
        file->journal = sqlite3_filename_journal(name);
    }
    if (file->group >= 0) {
        pthread_mutex_lock(&databases_lock);
        file->next = databases;
        databases = file;
        pthread_mutex_unlock(&databases_lock);
    }
    return rc;
}

/* With synchronous=EXTRA the journal's removal is synced too. */
static int vfs_delete(sqlite3_vfs *self, const char *name, int sync_directory) {
    pg_t group = -1;
    File *file;
    (void)self;
    pthread_mutex_lock(&databases_lock);
    for (file = databases; sync_directory && file && group < 0; file = file->next) {
        if (file->journal && !strcmp(file->journal, name)) group = ordering(file);
    }
    pthread_mutex_unlock(&databases_lock);
    if (group >= 0) {
        int rc = vfs.real->xDelete(vfs.real, name, 0);
        if (rc != SQLITE_OK) return rc;
        return pg_advance(group) == 0 ? SQLITE_OK : SQLITE_IOERR_DIR_FSYNC;
    }
    return vfs.real->xDelete(vfs.real, name, sync_directory);
}

static int vfs_access(sqlite3_vfs *self, const char *name, int flags, int *is) {
    (void)self;
    return vfs.real->xAccess(vfs.real, name, flags, is);
}
static int vfs_full_pathname(sqlite3_vfs *self, const char *name, int size, char *into) {
    (void)self;
    return vfs.real->xFullPathname(vfs.real, name, size, into);
}
static int vfs_randomness(sqlite3_vfs *self, int size, char *into) {
    (void)self;
    return vfs.real->xRandomness(vfs.real, size, into);
}
static int vfs_sleep(sqlite3_vfs *self, int microseconds) {
    (void)self;
    return vfs.real->xSleep(vfs.real, microseconds);
}
static int vfs_current_time(sqlite3_vfs *self, double *now) {
    (void)self;
    return vfs.real->xCurrentTime(vfs.real, now);
}
static int vfs_current_time_64(sqlite3_vfs *self, sqlite3_int64 *now) {
    (void)self;
    return vfs.real->xCurrentTimeInt64(vfs.real, now);
}
static int vfs_last_error(sqlite3_vfs *self, int size, char *into) {
    (void)self;
    return vfs.real->xGetLastError(vfs.real, size, into);
}

int sqlite3_backstitch_init(sqlite3 *db, char **error, const sqlite3_api_routines *api) {
    int rc;
    (void)db;
    SQLITE_EXTENSION_INIT2(api);
    if (sqlite3_libversion_number() < 3031000) {
        *error = sqlite3_mprintf("SQLite 3.31 or newer is wanted");
        return SQLITE_ERROR;
    }
    if (vfs.real) return SQLITE_OK_LOAD_PERMANENTLY;
    vfs.real = sqlite3_vfs_find(0);
    if (!vfs.real || vfs.real->iVersion < 2) {
        *error = sqlite3_mprintf("the default VFS is too old to build on");
        vfs.real = 0;
        return SQLITE_ERROR;
    }
    vfs.base = (sqlite3_vfs){
        .iVersion = 2,
        .szOsFile = (int)sizeof(File) + vfs.real->szOsFile,
        .mxPathname = vfs.real->mxPathname,
        .zName = "backstitch",
        .xOpen = vfs_open,
        .xDelete = vfs_delete,
        .xAccess = vfs_access,
        .xFullPathname = vfs_full_pathname,
        .xRandomness = vfs_randomness,
        .xSleep = vfs_sleep,
        .xCurrentTime = vfs_current_time,
        .xGetLastError = vfs_last_error,
        .xCurrentTimeInt64 = vfs_current_time_64,
    };
    rc = sqlite3_vfs_register(&vfs.base, 0);
    return rc == SQLITE_OK ? SQLITE_OK_LOAD_PERMANENTLY : rc;
}
