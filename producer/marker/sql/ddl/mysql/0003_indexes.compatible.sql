-- The claim's index leads with the shard. As in the step before, an interrupted migration may have taken this step.
SET @missing = (SELECT COUNT(*) = 0 FROM information_schema.statistics
  WHERE table_schema = {schema} AND table_name = '{index}' AND index_name = '{index}_claim');
SET @step = IF(@missing, 'ALTER TABLE {table}
  ADD KEY {index}_claim (shard_id, producer, state, due_at, lock_until, id),
  ADD KEY {index}_created (created_at),
  ADD KEY {index}_aggregate (aggregate_type, aggregate_id)', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
