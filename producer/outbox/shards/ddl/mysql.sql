-- Which relay of msghandler's producers has which shard, for MySQL and MariaDB. A row is a shard, or a relay that lives.
-- All times are milliseconds since 1970, by this database's clock.
CREATE TABLE IF NOT EXISTS {table} (
  producer     VARBINARY(100) NOT NULL,
  name         VARBINARY(255) NOT NULL COMMENT 'shard/NUMBER or relay/OWNER',
  shard_id     INT COMMENT 'NULL in the row of a relay',
  owner        VARBINARY(255) COMMENT 'the relay that has the shard; NULL: none',
  until_at     BIGINT NOT NULL COMMENT 'when the lease ends, or the relay counts as dead',
  epoch        BIGINT NOT NULL DEFAULT 0 COMMENT 'how often the shard was taken',
  created_at   BIGINT NOT NULL,
  PRIMARY KEY (producer, name)
) ENGINE=InnoDB;
