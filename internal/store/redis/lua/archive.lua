-- Purpose: keeps finished messages in the archive of their shard, a stream. Only scripts that end messages have this
--   part, and only where the archive is on. An entry is written in the step that ends its message, and never stops that
--   step: what cannot be kept is counted. ARCHIVED (milliseconds), ARCHIVEMOST and ARCHIVEBODY bound the archive.
local archive = {key = KEYS[1] .. ARCHIVE, at = string.format('%.0f-*', now), kept = 0, dropped = 0}

-- archive.full says whether trim.lua has found that Redis needs its memory for messages.
function archive.full()
  if archive.is_full == nil then
    archive.is_full = redis.pcall('EXISTS', KEYS[1] .. ARCHIVEFULL) == 1
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

-- archive.append writes an entry, and says whether it could.
function archive.append(at, message, record)
  local reply = redis.pcall('XADD', archive.key, 'MAXLEN', '~', ARCHIVEMOST, at, 'message', message, 'record', record)
  return type(reply) == 'string'
end

-- archive.add keeps a message by its record: how it ended, when it was created and committed ('-' for unknown), and how
-- many copies of it were published. A record that holds no message any more is not kept. A body that is too long is left
-- out.
function archive.add(producer, id, ended, created, committed, copies, record)
  local kind = record and string.byte(record)
  if kind ~= 104 and kind ~= 112 and kind ~= 72 and kind ~= 80 then -- h and p, H and P: not what a stripped record has
    return
  end
  if archive.full() then
    archive.dropped = archive.dropped + 1
    return
  end
  local body = 'whole'
  if #record > ARCHIVEBODY then
    local stop = string.find(record, '\n', 1, true) or #record
    if #record - stop > ARCHIVEBODY then
      body, record = 'cut', string.sub(record, 1, stop)
    end
  end
  local message = ended .. ' ' .. created .. ' ' .. committed .. ' ' .. copies .. ' ' .. body .. ' ' .. producer .. ' ' .. id
  -- The entry has the time of the receipt as its id. After a clock that went back the stream gives a later one.
  if archive.append(archive.at, message, record) or archive.append('*', message, record) then
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
