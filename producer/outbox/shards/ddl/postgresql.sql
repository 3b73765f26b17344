-- Which relay of msghandler's producers has which shard. A row is a shard, or a relay that lives. All times are
-- milliseconds since 1970, by this database's clock.
CREATE TABLE {table} (
  producer     TEXT COLLATE "C" NOT NULL,
  name         TEXT COLLATE "C" NOT NULL,   -- shard/NUMBER or relay/OWNER
  shard_id     INT,                         -- NULL in the row of a relay
  owner        TEXT,                        -- the relay that has the shard; NULL: none
  until_at     BIGINT NOT NULL,             -- when the lease ends, or the relay counts as dead
  epoch        BIGINT NOT NULL DEFAULT 0,   -- how often the shard was taken
  created_at   BIGINT NOT NULL,
  PRIMARY KEY (producer, name)
);
