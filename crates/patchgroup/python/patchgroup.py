"""Patchgroups: order on the disk without waiting.

    write = patchgroup.Group("/mnt")
    with write:
        save("/mnt/out")
    remove = patchgroup.Group("/mnt")
    remove.depend(write)
    with remove:
        os.remove("/mnt/in")

No crash leaves neither "in" nor "out", and nobody waited. A group takes its dependencies first, then it is engaged, any number of times;
once something depends on it, it is sealed (EINVAL). What is done by a process that has the group's descriptor open belongs to the group
while it is engaged; children inherit it. Close memory mappings before the group is disengaged.

On a file system without patchgroups depend() and sync() wait instead (os.sync), so that the order holds all the same.

Nothing but the standard library is needed. (Frost et al., "Generalized File System Dependencies", SOSP 2007, section 5.)
"""

import array
import errno
import os
import socket
import stat
import struct

_XATTR = "system.backstitch.patchgroups"
_SYNC_XATTR = "system.backstitch.sync"
(_CREATE, _DEPEND, _ENGAGE, _DISENGAGE, _SYNC, _IS_DURABLE, _WAIT, _LABEL, _LINEAR, _ORDER, _ADVANCE) = range(11)


def _connect(address):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection


def _send(connection, operation, argument, descriptors):
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
    connection.sendmsg([bytes([operation]) + argument], [rights])


def _answer(connection):
    reply = connection.recv(16)
    if len(reply) != 8:
        raise OSError(errno.EPIPE, os.strerror(errno.EPIPE))
    number, value = struct.unpack("=ii", reply)
    if number:
        raise OSError(number, os.strerror(number))
    return value


def _address(path):
    return b"\0" + os.getxattr(path, _XATTR)


def supported(path="."):
    """Whether the file system that holds path has patchgroups, and this process can reach them."""
    try:
        _connect(_address(path)).close()
        return True
    except OSError:
        return False


class Group:
    """A patchgroup of the file system that holds path. `with group:` engages it."""

    def __init__(self, path="."):
        try:
            self._address = _address(path)
            connection = _connect(self._address)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENODATA, errno.ECONNREFUSED):
                raise
            self._address = None
            self._descriptor = os.open(path, os.O_RDONLY)
            os.set_inheritable(self._descriptor, True)
            return
        with connection:
            _send(connection, _CREATE, b"", [connection.fileno()])
            _answer(connection)
            self._descriptor = connection.detach()
        os.set_inheritable(self._descriptor, True)

    def fileno(self):
        """The descriptor that is the group."""
        return self._descriptor

    @property
    def supported(self):
        """Whether order is kept without waiting."""
        return stat.S_ISSOCK(os.fstat(self._descriptor).st_mode)

    def _ask(self, operation, argument=b"", others=()):
        descriptors = [self._descriptor] + [other._descriptor for other in others]
        connection = _connect(self._address)
        try:
            _send(connection, operation, argument, descriptors)
        except BaseException:
            connection.close()
            raise
        return connection

    def _call(self, operation, argument=b"", others=()):
        if not self.supported:
            return None
        with self._ask(operation, argument, others) as connection:
            return _answer(connection)

    def _sync_all(self):
        os.sync()
        try:
            # It may be a mount whose groups are out of reach, and the kernel does not tell such a mount of sync.
            os.setxattr(self._descriptor, _SYNC_XATTR, b"")
        except OSError as error:
            if error.errno == errno.EIO:
                raise

    def depend(self, before):
        """Everything done under this group reaches the disk no earlier than everything done under before, which is sealed."""
        if self._call(_DEPEND, others=[before]) is None:
            self._sync_all()

    def engage(self):
        """From now on what the holders of the group do belongs to it."""
        self._call(_ENGAGE)

    def disengage(self):
        """No longer."""
        self._call(_DISENGAGE)

    def advance(self):
        """What is done under this group from now on comes after everything done under it before; it may be engaged."""
        if self._call(_ADVANCE) is None:
            self._sync_all()

    def sync(self):
        """Puts everything done under the group onto stable storage."""
        if self._call(_SYNC) is None:
            self._sync_all()

    @property
    def durable(self):
        """Whether it is there; False where nobody knows."""
        return bool(self._call(_IS_DURABLE))

    def wait(self):
        """Waits until it is, without having anything written."""
        if self._call(_WAIT) is None:
            self._sync_all()

    def notify(self):
        """A socket that becomes readable once it is; None where it is already."""
        if not self.supported:
            self._sync_all()
            return None
        return self._ask(_WAIT)

    def label(self, name):
        """A name for people, up to 200 bytes."""
        self._call(_LABEL, name.encode()[:200])

    def linear(self):
        """Each operation under the group comes after the one before it."""
        if self._call(_LINEAR) is None:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    def close(self):
        """Closes the descriptor; the order stays."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self):
        self.engage()
        return self

    def __exit__(self, *_):
        self.disengage()

    def __del__(self):
        if getattr(self, "_descriptor", None) is not None:
            self.close()
