-- The inbox of msghandler's consumers, for MySQL and MariaDB: one row for each message whose effect has committed. Keys
-- are binary: a text column would take Order:7 and order:7 for the same. All times are milliseconds since 1970, by this
-- database's clock.
CREATE TABLE IF NOT EXISTS msghandler_inbox (
  consumer     VARBINARY(100) NOT NULL,
  message      VARBINARY(511) NOT NULL COMMENT 'PRODUCER/ID',
  created_at   BIGINT NOT NULL COMMENT 'when the effect wrote it; the purge counts from here',
  PRIMARY KEY (consumer, message),
  KEY msghandler_inbox_created (consumer, created_at)
) ENGINE=InnoDB;
