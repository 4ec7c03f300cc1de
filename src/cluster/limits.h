/* limits: every maximum of the cluster in one place. Whatever a stranger, a job or a slow reader
 * can make grow is bounded by a row here. Bytes unless the name says otherwise. */
#ifndef RAIA_CLUSTER_LIMITS_H
#define RAIA_CLUSTER_LIMITS_H

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* HTTP */
enum {
    LIMIT_CONNECTIONS = 4096,
    LIMIT_URL = 8192,         /* also the share of a connection's pool that headers may take */
    LIMIT_HEADERS_S = 15,     /* a request's header must be whole by then */
    LIMIT_IDLE_S = 60,        /* a kept-alive connection without a request */
    LIMIT_BODY_S = 30,        /* a JSON body must be whole by then */
    LIMIT_UPLOAD_S = 1800,    /* a package must be whole by then, whatever its size */
    LIMIT_UPLOAD_RATE = 4096, /* bytes a second that an upload must keep up after LIMIT_BODY_S */
    LIMIT_POLL_S = 60,        /* longest answer to a long poll */
    LIMIT_WAITERS = 4096,     /* requests that wait at one time */
};
#define LIMIT_JSON_BODY (8 * MIB)

/* packages */
#define LIMIT_PACKAGE (512 * MIB)           /* the zip */
#define LIMIT_PACKAGES ((size_t)16 << 30)   /* all that a head keeps */
#define LIMIT_UNPACKED ((uint64_t)16 << 30) /* all files of one package */
enum {
    LIMIT_PACKAGE_NAME = 160,
    LIMIT_PACKAGE_FILES = 200000,
    LIMIT_PACKAGE_PATH = 1024,
    LIMIT_PACKAGE_DEPTH = 64,
    LIMIT_PACKAGE_PIN_S = 600, /* how long a GET or PUT keeps a package that no job uses */
};

/* jobs */
enum {
    LIMIT_JOBS = 10000,     /* records kept; the oldest ended ones go first */
    LIMIT_JOBS_LIVE = 1000, /* jobs that have not ended */
    LIMIT_JOB_ID = 512,
    LIMIT_EVENTS = 64,    /* events kept of a job */
    LIMIT_GROUPS = 64,    /* groups of a job that have not ended */
    LIMIT_RANKS = 4096,   /* ranks of a group */
    LIMIT_WORKERS = 4096, /* workers and GPUs of a node */
    LIMIT_NODES = 4096,
    LIMIT_LAST_LINES = 10, /* lines kept of each process */
};
#define LIMIT_ENTRYPOINT (128 * KIB - 1) /* Linux: one argument of execve(2) */
#define LIMIT_SPAWN (1 * MIB)            /* arguments and environment of a rank */
#define LIMIT_LAST_BYTES 20000           /* of the last lines in a job's message */
#define LIMIT_EVENT (64 * KIB)
#define LIMIT_LOG ((uint64_t)4 << 30) /* log of one job */
#define LIMIT_LINE (64 * KIB)         /* longer lines are broken */

/* links between head, agents and supervisors */
#define LIMIT_MESSAGE (16 * MIB)     /* one message */
#define LIMIT_LINK (64 * MIB)        /* unacknowledged messages; beyond it the link is cut */
#define LINK_HIGH (4 * MIB)          /* from here on the producers of log lines are held */
#define LINK_LOW (1 * MIB)           /* until here */
#define LIMIT_TAIL_QUEUE (256 * KIB) /* of log text on its way to one reader */
enum {
    BEAT_MS = 500,          /* a ping on a silent connection */
    SILENCE_MS = 2500,      /* no byte for so long: the other side is gone */
    WRITE_STALL_MS = 30000, /* a reader that takes nothing for so long is dropped */
    REJOIN_MS = 1000, /* an agent whose connection closed may come back within; silence, this and
                       * the grace of a lost job together stay under 5 s */
    DIAL_MS = 2000,   /* one attempt to connect */
};

/* stopping */
enum {
    STOP_GRACE_MS = 3000, /* from TERM to KILL (RAY_JOB_STOP_WAIT_TIME_S) */
    KILL_MS = 10000,      /* from KILL until processes that will not die are reported */
    CLOSE_MS = 15000,     /* a node that does not confirm a job's end by then is passed over */
    EOF_MS = 500,         /* from a process's end until its output is closed */
    PENDING_S = 900,      /* a job that cannot start fails (RAY_JOB_START_TIMEOUT_SECONDS) */
    SETUP_S = 600,        /* its working folder must be there by then */
    GROUP_PENDING_S = 600,
};

#endif
