-- publish, heartbeat, heartbeats, prune: a namespace's records, and what its sidecars say of themselves.
--
-- publish makes the config hash hold exactly what the manager wants, at one instant, and tells the sidecars.
--   KEYS[1]  the namespace's config hash
--   ARGV     1 fence: an integer that grows with each leader; 2 an epoch above the fence that may be replaced all the
--            same, or 0; 3 the channel; 4 the number n of fields; then n times field, value, digest; then the fields
--            that stay as they are stored
--   Reply    the revision, and 1 when it is new; error FENCED <epoch> when a later leader has published
--
-- All other fields are removed. Nothing is written when nothing differs, so a repair is a publication. A stored field
-- that stays but has no digest gets an empty one: readers then refuse it and keep what they have, while a field without
-- any digest would read as a deleted policy.
--
-- heartbeat stores what a sidecar says of itself, behind this node's time.
--   KEYS[1]  the namespace's heartbeats hash
--   ARGV     1 pod UID; 2 heartbeat
--   Reply    the time, unix microseconds
--
-- heartbeats reads those of some pods; one that is too long, which only a hand can have written, counts as missing.
--   KEYS[1]  the namespace's heartbeats hash
--   ARGV     pod UIDs
--   Reply    the time, then for each pod "<time> <heartbeat>" or nil
--
-- prune removes those of all pods but some. One of the last minute stays: its pod may be newer than the manager's list.
--   KEYS[1]  the namespace's heartbeats hash
--   ARGV     UIDs of living pods
--   Reply    how many were removed
do
  local EXACT = 2 ^ 53 -- integers below are exact in a double
  local MAX_UID, MAX_HEARTBEAT = 64, 65536
  local HEARTBEATS_TTL_MS = 15 * 60 * 1000
  local PRUNE_AFTER_US = 60 * 1000000
  local EPOCH, REVISION, DIGESTS = '$epoch', '$revision', '$digests'

  -- integer gives nil for all that is no whole number from 0 to below 2^53 - 1, so that one more is exact too.
  local function integer(text)
    local number = text and tonumber(text)
    if number and number >= 0 and number < EXACT - 1 and number == math.floor(number) then
      return number
    end
    return nil
  end

  local function spell(number)
    return string.format('%.0f', number)
  end

  -- only_hash removes what is no hash: a hand put it there, and it would be in the way for ever.
  local function only_hash(key)
    local kind = redis.call('TYPE', key).ok
    if kind ~= 'hash' and kind ~= 'none' then
      redis.call('DEL', key)
    end
  end

  -- stored_digests reads the digests; what a hand has spoilt counts as missing.
  local function stored_digests(text)
    local digests = {}
    local ok, decoded = pcall(cjson.decode, text or '')
    if ok and type(decoded) == 'table' then
      for field, digest in pairs(decoded) do
        if type(field) == 'string' and type(digest) == 'string' then
          digests[field] = digest
        end
      end
    end
    return digests, ok
  end

  -- write_fields stores the wanted fields that differ, and gives the digests of all fields that are to be there.
  local function write_fields(key, args, count, digests)
    local wanted, changed = {}, false
    for i = 5, 4 + 3 * count, 3 do
      local field, value, digest = args[i], args[i + 1], args[i + 2]
      wanted[field] = digest
      if digests[field] ~= digest or redis.call('HGET', key, field) ~= value then
        redis.call('HSET', key, field, value)
        changed = true
      end
    end
    for i = 5 + 3 * count, #args do
      local field = args[i]
      if not wanted[field] and redis.call('HEXISTS', key, field) == 1 then
        wanted[field] = digests[field] or ''
      end
    end
    return wanted, changed
  end

  -- remove_others removes the fields that are not wanted, and tells whether the digests say anything else.
  local function remove_others(key, wanted, digests)
    local changed = false
    local fields = redis.call('HKEYS', key)
    for i = 1, #fields do
      local field = fields[i]
      if not wanted[field] and field ~= EPOCH and field ~= REVISION and field ~= DIGESTS then
        redis.call('HDEL', key, field)
        changed = true
      end
    end
    for field, digest in pairs(wanted) do
      changed = changed or digests[field] ~= digest
    end
    for field in pairs(digests) do
      changed = changed or not wanted[field]
    end
    return changed
  end

  redis.register_function(LIBRARY .. '_publish', function(keys, args)
    local fence, superseded, channel, count = integer(args[1]), integer(args[2]), args[3], integer(args[4])
    if #keys ~= 1 or not fence or not superseded or not count or #args < 4 + 3 * count then
      return redis.error_reply('ERR malformed publication')
    end
    local key = keys[1]
    only_hash(key)
    local stored = redis.call('HMGET', key, EPOCH, REVISION, DIGESTS)
    local epoch, revision = integer(stored[1]), integer(stored[2])
    if epoch and epoch > fence and epoch ~= superseded then
      return redis.error_reply('FENCED ' .. stored[1])
    end
    local digests, sound = stored_digests(stored[3])
    local wanted, changed = write_fields(key, args, count, digests)
    changed = remove_others(key, wanted, digests) or changed
    if epoch ~= fence then
      redis.call('HSET', key, EPOCH, spell(fence))
    end
    if revision and sound and not changed then
      return { spell(revision), 0 }
    end
    revision = spell(math.max((revision or 0) + 1, now_us()))
    redis.call('HSET', key, REVISION, revision, DIGESTS, cjson.encode(wanted))
    redis.call('PUBLISH', channel, revision)
    return { revision, 1 }
  end)

  redis.register_function(LIBRARY .. '_heartbeat', function(keys, args)
    if #keys ~= 1 or #args ~= 2 or #args[1] < 1 or #args[1] > MAX_UID or #args[2] > MAX_HEARTBEAT then
      return redis.error_reply('ERR malformed heartbeat')
    end
    local now = spell(now_us())
    redis.call('HSET', keys[1], args[1], now .. ' ' .. args[2])
    redis.call('PEXPIRE', keys[1], HEARTBEATS_TTL_MS)
    return now
  end)

  redis.register_function({
    function_name = LIBRARY .. '_heartbeats',
    flags = { 'no-writes' },
    callback = function(keys, args)
      if #keys ~= 1 then
        return redis.error_reply('ERR one key is wanted')
      end
      local reply = { spell(now_us()) }
      for i = 1, #args do
        local value = false
        if redis.call('HSTRLEN', keys[1], args[i]) <= MAX_HEARTBEAT + 32 then
          value = redis.call('HGET', keys[1], args[i])
        end
        reply[i + 1] = value
      end
      return reply
    end,
  })

  redis.register_function(LIBRARY .. '_prune', function(keys, args)
    if #keys ~= 1 then
      return redis.error_reply('ERR one key is wanted')
    end
    only_hash(keys[1])
    local living = {}
    for i = 1, #args do
      living[args[i]] = true
    end
    local removed, now = 0, now_us()
    local pods = redis.call('HKEYS', keys[1])
    for i = 1, #pods do
      local pod = pods[i]
      if not living[pod] then
        local time
        if redis.call('HSTRLEN', keys[1], pod) <= MAX_HEARTBEAT + 32 then
          time = integer(string.match(redis.call('HGET', keys[1], pod), '^%d+'))
        end
        if not time or now - time > PRUNE_AFTER_US then
          removed = removed + redis.call('HDEL', keys[1], pod)
        end
      end
    end
    return removed
  end)
end
