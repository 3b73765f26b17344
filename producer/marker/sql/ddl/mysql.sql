-- Business markers and the local message table of msghandler's producers, for MySQL and MariaDB. Ids are binary: a text
-- column would take Order:7 and order:7 for the same. All times are milliseconds since 1970, by this database's clock.
-- First the identity of these markers: a process that finds their table finds the identity as well. The coordinator counts
-- no verdict of markers with another one. A replica that repeats statements repeats the variable, and not the random number.
-- Markers that replace lost ones get a new identity: with the old one each message of a lost marker would be rolled back.
-- A young identity is of another process that creates the markers just now.
CREATE TABLE IF NOT EXISTS {table}_identity (one TINYINT NOT NULL PRIMARY KEY,
    identity VARCHAR(16) CHARACTER SET ascii NOT NULL, made_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP) ENGINE=InnoDB;
DELETE FROM {table}_identity WHERE one = 1 AND UNIX_TIMESTAMP(made_at) < UNIX_TIMESTAMP() - 60 AND NOT EXISTS (
    SELECT 1 FROM information_schema.tables WHERE table_schema = {schema} AND table_name = '{index}');
SET @identity = LEFT(SHA1(CONCAT(UUID(), RAND())), 12);
INSERT INTO {table}_identity (one, identity) VALUES (1, @identity) ON DUPLICATE KEY UPDATE one = one;
CREATE TABLE IF NOT EXISTS {table} (
  producer       VARBINARY(101) NOT NULL,
  id             VARBINARY(256) NOT NULL,
  verdict        SMALLINT NOT NULL COMMENT '2 committed, 3 rolled back: a tombstone',
  created_at     BIGINT NOT NULL,
  updated_at     BIGINT,
  cleaned_at     BIGINT COMMENT 'from when the purge counts: no coordinator asks any more',
  -- The message, if the row has one.
  state          SMALLINT NOT NULL DEFAULT 0 COMMENT '0 none, 1 waiting, 2 handed over, 3 sent, 4 failed',
  shard_id       INT NOT NULL DEFAULT 0 COMMENT 'which relay may claim the row, where relays divide shards',
  exchange_name  VARCHAR(256) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  routing_key    VARCHAR(256) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  message        MEDIUMTEXT CHARACTER SET utf8mb4 COMMENT 'the rest of the message as JSON',
  body           LONGBLOB,
  event_type     VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin COMMENT 'this column and the next two are for people',
  aggregate_type VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  aggregate_id   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  due_at         BIGINT COMMENT 'when a relay may claim the row next; during a claim, its end',
  owner          VARBINARY(255) COMMENT 'the claim of a relay, since lock_time and until lock_until',
  lock_time      BIGINT,
  lock_until     BIGINT,
  claims         INT NOT NULL DEFAULT 0 COMMENT 'above 1 the message may have been sent before',
  attempts       INT NOT NULL DEFAULT 0 COMMENT 'how often the message was refused',
  last_error     TEXT CHARACTER SET utf8mb4,
  sent_at        BIGINT COMMENT 'when the broker had the message, or the coordinator a verdict',
  -- An INSERT that breaks these rules fails: its row would not be found, or never be sent. A column holds one byte or
  -- character more than its rule allows, because a session without a strict sql_mode cuts a value before a rule is checked.
  CONSTRAINT {index}_key CHECK (LENGTH(producer) <= 100 AND LENGTH(id) <= 255),
  CONSTRAINT {index}_verdict CHECK (verdict IN (2, 3)),
  CONSTRAINT {index}_state CHECK (state BETWEEN 0 AND 4 AND shard_id >= 0),
  CONSTRAINT {index}_destination CHECK (OCTET_LENGTH(exchange_name) <= 255 AND OCTET_LENGTH(routing_key) <= 255),
  CONSTRAINT {index}_message CHECK (message IS NULL OR JSON_VALID(message)),
  PRIMARY KEY (producer, id),
  -- The index of claims leads with the shard.
  KEY {index}_claim (shard_id, producer, state, due_at, lock_until, id),
  KEY {index}_due (producer, state, due_at),
  KEY {index}_cleaned (producer, cleaned_at),
  KEY {index}_created (created_at),
  KEY {index}_aggregate (aggregate_type, aggregate_id)
) ENGINE=InnoDB;
