-- Which relay of msghandler's producers has which shard. A row is a shard, or a relay that lives. All times are
-- milliseconds since 1970.
CREATE TABLE {table} (
  producer     TEXT NOT NULL,
  name         TEXT NOT NULL,               -- shard/NUMBER or relay/OWNER
  shard_id     INTEGER,                     -- NULL in the row of a relay
  owner        TEXT,                        -- the relay that has the shard; NULL: none
  until_at     INTEGER NOT NULL,            -- when the lease ends, or the relay counts as dead
  epoch        INTEGER NOT NULL DEFAULT 0,  -- how often the shard was taken
  created_at   INTEGER NOT NULL,
  PRIMARY KEY (producer, name)
);
