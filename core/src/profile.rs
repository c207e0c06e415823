use std::time::Duration;

/// What a store can and promises, as data. The kit checks both sides of every entry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreProfile {
    /// The store's short name, as in its URL.
    pub name: &'static str,
    /// The shortest ttl it takes.
    pub min_ttl: Duration,
    /// The longest ttl it takes.
    pub max_ttl: Duration,
    /// Who judges that a grant is over.
    pub timing: Timing,
    /// Where its fencing tokens come from.
    pub token_origin: TokenOrigin,
    /// Among whom at most one holds a key.
    pub scope: Scope,
    /// Whether tokens go on growing when the key's record has been deleted, as long as clocks are not behind by more than
    /// the time since the last grant, and that is at least [`floor_resolution`](Self::floor_resolution).
    pub token_survives_deletion: bool,
    /// How exactly the floor of a token is known: two grants nearer to each other than this, with a deletion between them, may have
    /// tokens that fall.
    pub floor_resolution: Duration,
    /// Whether records outlive the last process that has the store open.
    pub durable: bool,
    /// Whether a second process that renews the same grant (a forked or restored one) is found out.
    pub detects_clones: bool,
    /// How many renewals one request can carry.
    pub max_batch: usize,
    /// Whether waiters get the key in the order in which they asked.
    pub fifo: bool,
    /// Requests of an uncontended acquire.
    pub requests_per_acquire: u32,
}

impl StoreProfile {
    /// A profile that claims the least; an adapter sets what it has.
    pub const fn new(name: &'static str, timing: Timing, token_origin: TokenOrigin, scope: Scope) -> Self {
        Self {
            name,
            min_ttl: Duration::from_secs(5),
            max_ttl: Duration::from_secs(24 * 60 * 60),
            timing,
            token_origin,
            scope,
            token_survives_deletion: false,
            floor_resolution: Duration::from_millis(1),
            durable: false,
            detects_clones: false,
            max_batch: 1,
            fifo: false,
            requests_per_acquire: 1,
        }
    }
}

/// Who judges that a grant is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Timing {
    /// The machine's boot clock, one for all its processes.
    Machine,
    /// The server, by its one clock.
    Server,
    /// A session with the server, ended when the server no longer hears from it.
    Session,
    /// The contender, in the store's time as learnt from its answers.
    StoreTime,
}

/// Where fencing tokens come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenOrigin {
    /// Made by the adapter from parts of which none is a token (Redlock).
    Constructed,
    /// A number of the server's that grows over all keys (etcd's revision, ZooKeeper's zxid).
    NativeGlobal,
    /// A number of the server's that grows per key.
    NativePerKey,
    /// A field of the key's record, raised with every grant.
    Record,
}

/// Among whom a store grants a key to at most one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scope {
    /// Nobody for certain: the store may forget a grant.
    BestEffort,
    /// The processes of one machine.
    Machine,
    /// Those who reach one service over several regions, linearizably.
    MultiRegion,
    /// The tasks of one process.
    Process,
    /// Those who reach one service in one region.
    Region,
}
