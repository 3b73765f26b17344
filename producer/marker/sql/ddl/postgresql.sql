-- Business markers and the local message table of msghandler's producers. All times are milliseconds since 1970, by this
-- database's clock.
CREATE TABLE {table} (
  producer       TEXT COLLATE "C" NOT NULL,
  id             BYTEA NOT NULL,
  verdict        SMALLINT NOT NULL,           -- 2 committed, 3 rolled back: a tombstone
  created_at     BIGINT NOT NULL,
  updated_at     BIGINT,
  cleaned_at     BIGINT,                      -- from when the purge counts: no coordinator asks any more
  -- The message, if the row has one.
  state          SMALLINT NOT NULL DEFAULT 0, -- 0 none, 1 waiting, 2 handed over, 3 sent, 4 failed
  shard_id       INT NOT NULL DEFAULT 0,      -- which relay may claim the row, where relays divide shards
  exchange_name  TEXT,
  routing_key    TEXT,
  message        TEXT,                        -- the rest of the message as JSON
  body           BYTEA,
  event_type     TEXT,                        -- this column and the next two are for people
  aggregate_type TEXT,
  aggregate_id   TEXT,
  due_at         BIGINT,                      -- when a relay may claim the row next; during a claim, its end
  owner          TEXT,                        -- the claim of a relay, since lock_time and until lock_until
  lock_time      BIGINT,
  lock_until     BIGINT,
  claims         INT NOT NULL DEFAULT 0,      -- above 1 the message may have been sent before
  attempts       INT NOT NULL DEFAULT 0,      -- how often the message was refused
  last_error     TEXT,
  sent_at        BIGINT,                      -- when the broker had the message, or the coordinator a verdict
  -- An INSERT that breaks these rules fails: its row would not be found, or never be sent.
  CONSTRAINT {index}_key CHECK (OCTET_LENGTH(producer) <= 100 AND OCTET_LENGTH(id) <= 255),
  CONSTRAINT {index}_verdict CHECK (verdict IN (2, 3)),
  CONSTRAINT {index}_state CHECK (state BETWEEN 0 AND 4 AND shard_id >= 0),
  CONSTRAINT {index}_destination CHECK (OCTET_LENGTH(exchange_name) <= 255 AND OCTET_LENGTH(routing_key) <= 255),
  PRIMARY KEY (producer, id)
);
-- The index of claims leads with the shard, and holds unsent messages only.
CREATE INDEX {index}_claim ON {table} (shard_id, producer, state, due_at, lock_until, id) WHERE due_at IS NOT NULL;
CREATE INDEX {index}_due ON {table} (producer, state, due_at);
CREATE INDEX {index}_cleaned ON {table} (producer, cleaned_at) WHERE cleaned_at IS NOT NULL;
CREATE INDEX {index}_created ON {table} (created_at);
CREATE INDEX {index}_aggregate ON {table} (aggregate_type, aggregate_id) WHERE aggregate_type IS NOT NULL;
-- The identity of these markers. The coordinator counts no verdict of markers with another identity. Markers that replace
-- lost ones get a new identity: with the old one each message of a lost marker would be rolled back.
CREATE TABLE IF NOT EXISTS {table}_identity (identity TEXT NOT NULL PRIMARY KEY);
DELETE FROM {table}_identity WHERE NOT EXISTS (SELECT 1 FROM {table});
INSERT INTO {table}_identity (identity) SELECT LEFT(REPLACE(gen_random_uuid()::TEXT, '-', ''), 12)
  WHERE NOT EXISTS (SELECT 1 FROM {table}_identity);
