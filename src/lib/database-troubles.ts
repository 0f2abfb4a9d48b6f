import { codeIn, NO_ACCESS, OVERDUE, TIMED_OUT, TLS } from './database-errors.ts'

/** A state of the database that its operator has to end. */
export type Trouble = {
  name:
    | 'unreachable'
    | 'disk_full'
    | 'disk_error'
    | 'moved'
    | 'read_only'
    | 'taken'
    | 'no_connections'
    | 'no_database'
    | 'no_access'
    | 'refused'
    | 'tls'
    | 'locked'
    | 'slow'
    | 'starting'
    | 'ended'
    | 'idle'
  /** Explanation for callers: the problem and the remedy. */
  detail: string
  /** Explanation for the log, if it differs. */
  line?: string
}

const TROUBLES: readonly (readonly [codes: RegExp, trouble: Trouble])[] = [
  [
    /^DatabaseNotReachable$/,
    {
      name: 'unreachable',
      detail:
        'The database cannot be reached. Repeat the request in a moment; the operator has to start it, or to look at the ' +
        'network and at DATABASE_URL.',
    },
  ],
  [
    /^(53100|SQLITE_FULL)$/,
    {
      name: 'disk_full',
      detail: 'The disk of the database is full: reads work, writes fail. The operator has to free space.',
    },
  ],
  [
    /^SQLITE_(IOERR|CANTOPEN)/,
    {
      name: 'disk_error',
      detail:
        'The database file cannot be read or written: its disk fails, is read-only, has no space or inodes left, or knows ' +
        'no locks, as some network shares. The operator has to look at the disk (df -h, df -i) and at the log of its system.',
    },
  ],
  [
    /^58...$/,
    {
      name: 'disk_error',
      detail: 'PostgreSQL cannot use its files. The operator has to look at its log and at its disk.',
    },
  ],
  [
    /^SQLITE_READONLY_DBMOVED$/,
    {
      name: 'moved',
      detail:
        'The database file was deleted, moved or replaced while the server uses it. The operator has to move it back, or ' +
        'to stop the server and restore a backup.',
      line:
        'the database file was deleted, moved or replaced while this server uses it, so writes are refused: move it back, ' +
        'or stop this server and restore a backup (npm run admin -- restore). A deleted file can be copied from ' +
        '/proc/<pid>/fd until this server stops',
    },
  ],
  [
    /^MUSTER_LOCK_TAKEN$/,
    {
      name: 'taken',
      detail: 'Another server uses the same database file. The operator has to stop one of the two.',
      line:
        'the file <database>.lock was deleted while this server runs, and another server uses the database by now. Runs can ' +
        'begin twice: stop one of the two servers (<database>.pid has the pid of the other one)',
    },
  ],
  [
    /^25006$/,
    {
      name: 'read_only',
      detail:
        'The database accepts no writes, as a standby or a provider with a full disk does. The operator has to make it ' +
        'writable, or to correct DATABASE_URL.',
    },
  ],
  [
    /^53300$/,
    {
      name: 'no_connections',
      detail:
        'PostgreSQL, or its pooler, has no free connection. The operator has to raise max_connections (max_client_conn of ' +
        'PgBouncer), or to lower DATABASE_POOL_SIZE.',
    },
  ],
  [
    /^28...$/,
    {
      name: 'refused',
      detail:
        'PostgreSQL refuses the user or the password of this server. The operator has to correct it, in PostgreSQL or in ' +
        'DATABASE_URL.',
    },
  ],
  [
    /^(3D000|55000|57P04)$/,
    {
      name: 'no_database',
      detail:
        'The database was dropped or renamed, or accepts no connections. The operator has to restore it, or to correct ' +
        'DATABASE_URL.',
    },
  ],
  [
    NO_ACCESS,
    {
      name: 'no_access',
      detail:
        'The role of this server may not use its tables, or does not find them. The operator has to undo a change of the ' +
        'rights, the schema public or the search_path.',
    },
  ],
  [
    TLS,
    {
      name: 'tls',
      detail:
        'The encrypted connection to PostgreSQL fails: PostgreSQL offers none, or its certificate is not accepted. The ' +
        'operator has to renew the certificate, or to set sslrootcert (the file of its authority) or sslmode in ' +
        'DATABASE_URL.',
    },
  ],
  [
    /^SQLITE_BUSY/,
    {
      name: 'locked',
      detail:
        'Another program holds a lock on the database file, such as a shell of sqlite3 with an open transaction. The ' +
        'operator has to end it.',
    },
  ],
  [
    /^55P03$/,
    {
      name: 'locked',
      detail:
        'Another session holds a lock for too long. Repeat the request; pg_locks shows the operator who holds it.',
    },
  ],
  [
    /^57014$/,
    {
      name: 'slow',
      detail:
        'PostgreSQL took too long for a statement and ended it. Repeat the request; the operator may have to raise ' +
        'statement_timeout, or to look for load and locks.',
    },
  ],
  [
    new RegExp(`^${OVERDUE}$`),
    {
      name: 'slow',
      detail:
        'The change took longer than 10 s, so it was undone. Repeat the request when the database has less to do; if it ' +
        'changes very many rows, the database has to be faster.',
    },
  ],
  [/^57P0[23]$/, { name: 'starting', detail: 'PostgreSQL is starting or stopping. Repeat the request in a moment.' }],
  [
    /^57P0[15]$/,
    {
      name: 'ended',
      detail: 'PostgreSQL has ended the connection of the request. Whether a write took effect is unknown: look first.',
      line: 'PostgreSQL has ended connections of this server: reads and unfinished transactions are repeated',
    },
  ],
  [
    TIMED_OUT,
    {
      name: 'idle',
      detail:
        'PostgreSQL has ended a transaction that was idle or open for too long. Nothing was written: repeat the request.',
      line:
        'PostgreSQL has ended transactions that were idle or open for too long, as when this process was suspended or ' +
        'overloaded: they are repeated',
    },
  ],
]

/** Returns what the operator has to end, by the database's own error code. */
export const troubleOf = (code: string): Trouble | undefined => TROUBLES.find(([codes]) => codes.test(code))?.[1]

/** Returns what the operator has to end, if that is why a statement failed. */
export const troubleIn = (error: unknown): Trouble | undefined => troubleOf(codeIn(error))
