-- Purpose: keeps finished messages in the archive of their shard, a stream. Only scripts that end messages have this part,
--   and only where the archive is on. An entry is written in the step that ends its message, and never stops that step: what
--   cannot be kept is counted. The names ARCHIVED (milliseconds), ARCHIVEMOST and ARCHIVEBODY bound the archive.
-- FULL is the part of maxmemory, in percent, from which on the archive takes nothing more: the rest is for messages.
local FULL = 90
local archive = {key = KEYS[1] .. ARCHIVE, kept = 0, dropped = 0}

-- archive.full says whether Redis needs its memory for messages. A server that does not tell is not full.
function archive.full()
  if archive.is_full == nil then
    local info = redis.pcall('INFO', 'memory')
    info = type(info) == 'string' and info or ''
    local most = tonumber(string.match(info, '\nmaxmemory:(%d+)') or 0)
    local used = tonumber(string.match(info, '\nused_memory:(%d+)') or 0)
    archive.is_full = most > 0 and used * 100 > most * FULL
  end
  return archive.is_full
end

-- archive.swap replaces a record by a receipt, and gives the record; archive.take removes and gives it. A key of another
-- type holds no record, and is replaced and removed as well.
function archive.swap(key, receipt)
  local record = redis.pcall('SET', key, receipt, 'PX', RETENTION_TEXT, 'GET')
  if type(record) ~= 'table' or not record.err then
    return record
  end
  redis.call('SET', key, receipt, 'PX', RETENTION_TEXT)
  return false
end

function archive.take(key)
  local record = redis.pcall('GETDEL', key)
  if type(record) ~= 'table' or not record.err then
    return record
  end
  redis.call('DEL', key)
  return false
end

-- archive.add keeps a message by its record: how it ended, when it was created and committed ('' for never), and how many
-- copies of it were published. A record that holds no message any more is not kept. A body that is too long is left out.
function archive.add(producer, id, ended, created, committed, copies, record)
  local kind = record and string.lower(string.sub(record, 1, 4))
  if kind ~= 'half' and kind ~= 'pack' then
    return
  end
  if archive.full() then
    archive.dropped = archive.dropped + 1
    return
  end
  local stop = string.find(record, '\n', 1, true) or #record
  local cut = #record - stop > ARCHIVEBODY
  if cut then
    record = string.sub(record, 1, stop)
  end
  local function append(at)
    local reply = redis.pcall('XADD', archive.key, 'MAXLEN', '~', ARCHIVEMOST, at, 'producer', producer, 'id', id,
      'ended', ended, 'created', created, 'committed', committed, 'copies', copies, 'cut', cut and 1 or 0, 'record', record)
    return type(reply) == 'string'
  end
  -- The entry has the time of the receipt as its id. After a clock that went back the stream gives a later one.
  if append(string.format('%.0f-*', now)) or append('*') then
    archive.kept = archive.kept + 1
  else
    archive.dropped = archive.dropped + 1
  end
end

-- archive.close bounds the life of the keys, also where no coordinator trims the archive any more.
function archive.close()
  if archive.kept > 0 then
    redis.pcall('PEXPIRE', archive.key, ARCHIVED)
  end
  if archive.dropped > 0 then
    redis.pcall('INCRBY', KEYS[1] .. DROPPED, archive.dropped)
    redis.pcall('PEXPIRE', KEYS[1] .. DROPPED, ARCHIVED)
  end
end
