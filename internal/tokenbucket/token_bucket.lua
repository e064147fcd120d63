-- take: charges the buckets of one policy for one set of key values.
-- giveback: returns charges that take made.
--
-- KEYS[1]  the string that holds a record per limit
-- ARGV[1]  of take: packed charges; of giveback: packed receipts; see below
-- Reply    of take: packed results, in the order of the charges, see below; of giveback: how many receipts are settled,
--          by a give-back or by a bucket that is full; malformed arguments are an error
--
-- All numbers are integers below 2^53, big endian. Times are unix microseconds.
--   charges  version 2 (1 byte), then for each of 1 to 16 charges, 37 bytes:
--            limit id (8), order (8), capacity (4), refill tokens (4), interval_us (8), cost (4), shadow (1: 0 or 1);
--            version 1 is the same, and its results lack server, now_us and epochs; in version 3 a debit (4) follows each
--            charge, and cost or debit may be 0, but not both
--   results  server (8) and now_us (8), then for each charge 29 bytes: flags (1: allowed 1, stale 2), tokens (4, signed),
--            remainder (8), lag_us (8), epoch (8: 0 if nothing was charged); where stale, 16 more, before the epoch: the
--            capacity (4), refill tokens (4) and interval_us (8) that decided
--   receipts version 1 (1 byte), server (8), then for each of 1 to 16 receipts, 28 bytes:
--            limit id (8), epoch (8), taken_us (8: now_us + lag_us of the take), cost (4)
--   string   version 2 (1 byte), then for each record 68 bytes:
--            limit id (8), order (8), capacity (4), refill tokens (4), interval_us (8), tokens (4, signed),
--            remainder (8), updated_us (8), epoch (8), brim_us (8); version 1 lacks the last two
--
-- A record that is missing is a full bucket, so a full one is never stored, and the key's expiry is a time at which every
-- record is full. Charges of enforced limits go through together or not at all; a shadow limit is charged as if it were
-- alone. A call that changes nothing writes nothing, and the one write is the last command.
--
-- A debit is taken before anything is decided and whatever is decided, into debt of at most one capacity; what exceeds
-- that is forgiven. A charge of cost 0 asks for nothing else, and refuses nothing.
--
-- Order grows with each state of a limit. A caller whose order is below the record's has an old limit: the record's
-- parameters decide, and the caller is told. A newer caller's parameters govern all the time since the last write, which
-- is never laxer than the larger of both limits.
--
-- Epochs say which charges can be given back without minting; README.md has the proof.
do
  local EXACT = 2 ^ 53 -- integers below are exact in a double
  local CHARGES_OLD, CHARGES_VERSION, CHARGES_DEBITS, STRING_OLD, STRING_VERSION, RECEIPTS_VERSION = '\1', '\2', '\3', '\1', '\2', '\1'
  local CHARGE, CHARGE_SIZE, MAX_CHARGES = '>c8I8I4I4I8I4B', 37, 16
  local CHARGE_DEBIT, CHARGE_DEBIT_SIZE = '>c8I8I4I4I8I4BI4', 41
  local RECEIPT, RECEIPT_SIZE = '>c8I8I8I4', 28
  local RECORD, RECORD_SIZE, RECORD_SIZE_OLD = '>c8I8I4I4I8i4I8I8I8I8', 68, 52
  local ORIGIN, RESULT, IN_FORCE, EPOCH, RESULT_EPOCH = '>I8I8', '>Bi4I8I8', '>I4I4I8', '>I8', '>Bi4I8I8I8'
  local MAX_TOKENS = 1e9
  local MIN_INTERVAL_US, MAX_INTERVAL_US = 1000, 366 * 86400 * 1e6
  local ALLOWED, STALE = 1, 2

  -- Redis hides the standard libraries while it loads this file, so the first call fetches these.
  local floor, max, min, pack, unpack, sub, format, NO_EPOCH
  -- The server names this load of the library in this process: a restart, a full resynchronisation with another master
  -- and another library make a new one. last_epoch is the last epoch that began here.
  local server, last_epoch = 0, 0
  local function bind()
    floor, max, min = math.floor, math.max, math.min
    pack, unpack, sub, format = struct.pack, struct.unpack, string.sub, string.format
    NO_EPOCH = pack('>I8I8', 0, 0)
    server = now_us()
  end

  -- The charges of the call at hand. Calls run one after the other, so all of them use the same tables: fresh ones would
  -- cost more than all the rest.
  local charges = {}
  for i = 1, MAX_CHARGES do
    charges[i] = { id = '', order = 0, capacity = 0, refill = 0, interval = 0, cost = 0, debit = 0, shadow = false,
      tokens = 0, remainder = 0, updated = 0, epoch = 0, brim = 0, allowed = false, charged = false, stale = false,
      found = false }
  end

  -- divide gives floor((elapsed * refill + remainder) / interval) and what is left, by Horner's rule over base-128 digits
  -- of elapsed: with interval < 2^45 and refill < 2^30 each step stays below 2^52 + 2^37. It stops early, with anything
  -- from missing up, once the bucket is full.
  local function divide(elapsed, refill, interval, remainder, missing)
    local quotient, rest, power = 0, 0, 2 ^ 49
    while power >= 1 do
      local digit = floor(elapsed / power)
      elapsed = elapsed - digit * power
      power = power / 128
      local step = rest * 128 + digit * refill
      rest = step % interval
      quotient = quotient * 128 + (step - rest) / interval
      if quotient >= missing then
        return quotient, 0
      end
    end
    rest = rest + remainder
    if rest >= interval then
      return quotient + 1, rest - interval
    end
    return quotient, rest
  end

  -- refilled gives tokens, remainder and updated at the time now. Time never runs backwards: after a clock was set back,
  -- updated stays ahead and nothing is refilled until the clock has caught up.
  local function refilled(tokens, remainder, updated, capacity, refill, interval, now)
    local missing, elapsed = capacity - tokens, now - updated
    if elapsed > 0 then
      updated = now
    end
    if missing <= 0 then
      return capacity, 0, updated
    end
    if elapsed <= 0 then
      return tokens, remainder, updated
    end
    local gained
    local product = elapsed * refill + remainder
    if product < EXACT then
      remainder = product % interval
      gained = (product - remainder) / interval
    else
      gained, remainder = divide(elapsed, refill, interval, remainder, missing)
    end
    if gained >= missing then
      return capacity, 0, updated
    end
    return tokens + gained, remainder, updated
  end

  -- full_us is a time at which the bucket is full. It is late by a trifle, never early: product and quotient may be
  -- rounded, by less than 2^-45 of them, and their sum below 2^53 by less than one.
  local function full_us(tokens, updated, capacity, refill, interval)
    return updated + (capacity - tokens) * interval / refill * (1 + 2 ^ -45) + 1
  end

  -- brim_us is the time from which a bucket that nothing is taken from any more would spill. It is early by a trifle,
  -- never late.
  local function brim_us(tokens, remainder, updated, capacity, refill, interval)
    if tokens >= capacity then
      return updated
    end
    local wait = floor(((capacity - tokens) * interval - remainder) / refill * (1 - 2 ^ -45)) - 1
    return min(updated + max(wait, 0), EXACT - 1)
  end

  -- spilt is what such a bucket has spilt since its epoch began, in parts of a token. Exact below one token, and above
  -- that not below one.
  local function spilt(updated, brim, refill)
    return max(updated - brim, 0) * refill
  end

  local function malformed(what)
    return redis.error_reply('ERR malformed arguments: ' .. what)
  end

  local function foreign()
    return redis.error_reply('ERR the key holds no buckets of this version')
  end

  -- record_size is that of the records in a string, nil if it is none of ours.
  local function record_size(stored)
    local version = sub(stored, 1, 1)
    local size = version == STRING_VERSION and RECORD_SIZE or version == STRING_OLD and RECORD_SIZE_OLD
    if size and (#stored - 1) % size == 0 then
      return size
    end
  end

  local function find(id, count)
    for i = 1, count do
      if charges[i].id == id then
        return charges[i]
      end
    end
  end

  -- parse reads the charges, and gives their number, or nil and an error reply.
  local function parse(blob)
    local version, layout, size = sub(blob, 1, 1), CHARGE, CHARGE_SIZE
    local debits = version == CHARGES_DEBITS
    if debits then
      layout, size = CHARGE_DEBIT, CHARGE_DEBIT_SIZE
    elseif version ~= CHARGES_VERSION and version ~= CHARGES_OLD then
      return nil, malformed('unknown version')
    end
    local count = (#blob - 1) / size
    if count < 1 or count > MAX_CHARGES or count ~= floor(count) then
      return nil, malformed('wrong length')
    end
    for i = 1, count do
      local id, order, capacity, refill, interval, cost, shadow, debit = unpack(layout, blob, 2 + (i - 1) * size)
      if not debits then
        debit = 0 -- unpack gives where it stopped
      end
      if find(id, i - 1) then
        return nil, malformed('two charges of one limit')
      end
      if order >= EXACT then
        return nil, malformed('order out of range')
      end
      if capacity < 1 or capacity > MAX_TOKENS or refill < 1 or refill > MAX_TOKENS or interval < MIN_INTERVAL_US
        or interval > MAX_INTERVAL_US or refill > interval then
        return nil, malformed('bucket out of range')
      end
      if cost > MAX_TOKENS or debit > MAX_TOKENS or cost + debit < 1 then
        return nil, malformed('cost out of range')
      end
      if shadow > 1 then
        return nil, malformed('unknown flags')
      end
      local c = charges[i]
      c.id, c.order, c.capacity, c.refill, c.interval, c.cost = id, order, capacity, refill, interval, cost
      c.shadow, c.stale, c.found, c.charged, c.epoch, c.brim = shadow == 1, false, false, false, 0, 0
      c.debit = debit
    end
    return count
  end

  -- load fills in the levels of the charges from their records. It gives the records of limits that are not asked, those
  -- that are not full yet, and the time at which the last of them is full. Nil and an error reply if the string is none
  -- of ours.
  local function load(key, count, now)
    local others, last_full = '', 0
    local stored = redis.call('GET', key)
    if stored then
      local size = record_size(stored)
      if not size then
        return nil, foreign()
      end
      if size == RECORD_SIZE_OLD then
        local records = STRING_VERSION
        for at = 2, #stored, size do
          records = records .. sub(stored, at, at + size - 1) .. NO_EPOCH
        end
        stored = records
      end
      for at = 2, #stored, RECORD_SIZE do
        local id, order, capacity, refill, interval, tokens, remainder, updated, epoch, brim = unpack(RECORD, stored, at)
        local c = find(id, count)
        if not c then
          if refilled(tokens, remainder, updated, capacity, refill, interval, now) < capacity then
            others = others .. sub(stored, at, at + RECORD_SIZE - 1)
            last_full = max(last_full, full_us(tokens, updated, capacity, refill, interval))
          end
        else
          if order > c.order then
            c.stale, c.order, c.capacity, c.refill, c.interval = true, order, capacity, refill, interval
          elseif capacity ~= c.capacity or refill ~= c.refill or interval ~= c.interval then
            epoch = 0
            if interval ~= c.interval then
              remainder = 0 -- a part of a token means another time now
            end
          end
          c.found, c.epoch, c.brim = true, epoch, brim
          c.tokens, c.remainder, c.updated = refilled(tokens, remainder, updated, c.capacity, c.refill, c.interval, now)
        end
      end
    end
    for i = 1, count do
      local c = charges[i]
      if not c.found then
        c.tokens, c.remainder, c.updated = c.capacity, 0, now
      end
    end
    return others, last_full
  end

  -- take_debit takes what is due whatever the level, but for what would exceed a debt of one capacity. That ends the
  -- epoch: what is forgiven would not have been if an earlier charge had not been made, so that is not returned any more.
  local function take_debit(c)
    local floor_tokens = min(c.tokens, -c.capacity) -- a limit that was made smaller may leave more debt
    c.tokens = c.tokens - c.debit
    if c.tokens < floor_tokens then
      if floor_tokens == -c.capacity then
        c.remainder = 0
      end
      c.tokens, c.epoch = floor_tokens, 0
    end
  end

  -- decide charges what is due and what passes, and tells whether anything was charged.
  local function decide(count)
    local refused, charged = false, false
    for i = 1, count do
      local c = charges[i]
      if c.debit > 0 then
        take_debit(c)
        charged = true
      end
      c.allowed = c.tokens >= c.cost or c.cost == 0
      refused = refused or not (c.allowed or c.shadow)
    end
    for i = 1, count do
      local c = charges[i]
      if c.allowed and c.cost > 0 and (c.shadow or not refused) then
        if c.epoch == 0 or spilt(c.updated, c.brim, c.refill) >= c.interval then
          last_epoch = max(last_epoch + 1, c.updated)
          c.epoch, c.brim = last_epoch, brim_us(c.tokens, c.remainder, c.updated, c.capacity, c.refill, c.interval)
        end
        c.tokens, c.charged = c.tokens - c.cost, true
        charged = true
      end
    end
    return charged
  end

  -- store writes the records, with an absolute expiry, on the clock that filled them: a relative one would count from
  -- another reading of it.
  local function store(key, records, last_full)
    local expiry_ms = min(floor(last_full / 1000) + 1, EXACT - 1)
    redis.call('SET', key, STRING_VERSION .. records, 'PXAT', format('%.0f', expiry_ms))
  end

  local function save(key, count, records, last_full)
    for i = 1, count do
      local c = charges[i]
      if c.tokens < c.capacity then
        records = records .. pack(RECORD, c.id, c.order, c.capacity, c.refill, c.interval, c.tokens, c.remainder,
          c.updated, c.epoch, c.brim)
        last_full = max(last_full, full_us(c.tokens, c.updated, c.capacity, c.refill, c.interval))
      end
    end
    store(key, records, last_full)
  end

  local function reply(count, now, receipts)
    local results = receipts and pack(ORIGIN, server, now) or ''
    for i = 1, count do
      local c = charges[i]
      local flags, epoch = (c.allowed and ALLOWED or 0) + (c.stale and STALE or 0), c.charged and c.epoch or 0
      if receipts and not c.stale then
        results = results .. pack(RESULT_EPOCH, flags, c.tokens, c.remainder, c.updated - now, epoch)
      else
        results = results .. pack(RESULT, flags, c.tokens, c.remainder, c.updated - now)
        if c.stale then
          results = results .. pack(IN_FORCE, c.capacity, c.refill, c.interval)
        end
        if receipts then
          results = results .. pack(EPOCH, epoch)
        end
      end
    end
    return results
  end

  -- parse_receipts gives the receipts by limit and their number, or nil and an error reply.
  local function parse_receipts(blob)
    local count = (#blob - 9) / RECEIPT_SIZE
    if sub(blob, 1, 1) ~= RECEIPTS_VERSION then
      return nil, malformed('unknown version')
    end
    if count < 1 or count > MAX_CHARGES or count ~= floor(count) then
      return nil, malformed('wrong length')
    end
    local receipts = {}
    for i = 1, count do
      local id, epoch, taken, cost = unpack(RECEIPT, blob, 10 + (i - 1) * RECEIPT_SIZE)
      if receipts[id] then
        return nil, malformed('two receipts of one limit')
      end
      if epoch < 1 or epoch >= EXACT or taken >= EXACT then
        return nil, malformed('time out of range')
      end
      if cost < 1 or cost > MAX_TOKENS then
        return nil, malformed('cost out of range')
      end
      receipts[id] = { epoch = epoch, taken = taken, cost = cost }
    end
    return receipts, count
  end

  -- returned is the level of a bucket after a give-back. Nil where the receipt does not prove that the charge is in the
  -- level and was not made good already, by what such a bucket would have spilt without it.
  local function returned(receipt, tokens, remainder, updated, capacity, refill, interval, epoch, brim)
    local lost = spilt(updated, brim, refill)
    if receipt.epoch ~= epoch or receipt.taken > updated or lost >= interval then
      return nil
    end
    tokens, remainder = tokens + receipt.cost, remainder - (lost - spilt(receipt.taken, brim, refill))
    if remainder < 0 then
      tokens, remainder = tokens - 1, remainder + interval
    end
    if tokens >= capacity then
      return capacity, 0
    end
    return tokens, remainder
  end

  -- give_back returns what the receipts prove, and tells how many are settled.
  local function give_back(key, receipts, count, now)
    local stored = redis.call('GET', key)
    if not stored then
      return count
    end
    local size = record_size(stored)
    if not size then
      return foreign()
    end
    if size == RECORD_SIZE_OLD then
      return 0
    end
    local records, last_full, settled, changed = '', now, count, false
    for at = 2, #stored, size do
      local id, order, capacity, refill, interval, tokens, remainder, updated, epoch, brim = unpack(RECORD, stored, at)
      local then_tokens, then_remainder, then_updated = refilled(tokens, remainder, updated, capacity, refill, interval, now)
      if then_tokens < capacity then
        local receipt, record = receipts[id], sub(stored, at, at + size - 1)
        if receipt then
          then_tokens, then_remainder = returned(receipt, then_tokens, then_remainder, then_updated, capacity, refill,
            interval, epoch, brim)
          if then_tokens then
            tokens, remainder, updated, changed = then_tokens, then_remainder, then_updated, true
            record = pack(RECORD, id, order, capacity, refill, interval, tokens, remainder, updated, epoch, brim)
          else
            settled = settled - 1
          end
        end
        if tokens < capacity then
          records = records .. record
          last_full = max(last_full, full_us(tokens, updated, capacity, refill, interval))
        end
      end
    end
    if changed then
      store(key, records, last_full)
    end
    return settled
  end

  -- register makes a function of one key and one packed argument.
  local function register(name, run)
    redis.register_function(LIBRARY .. name, function(keys, args)
      if #keys ~= 1 or #args ~= 1 then
        return redis.error_reply('ERR one key and one argument are wanted')
      end
      if not pack then
        bind()
      end
      return run(keys[1], args[1])
    end)
  end

  register('_take', function(key, packed)
    local count, problem = parse(packed)
    if not count then
      return problem
    end
    local now = now_us()
    local others, last_full = load(key, count, now)
    if not others then
      return last_full
    end
    if decide(count) then
      save(key, count, others, last_full)
    end
    return reply(count, now, sub(packed, 1, 1) ~= CHARGES_OLD)
  end)

  register('_giveback', function(key, packed)
    local receipts, count = parse_receipts(packed)
    if not receipts then
      return count
    end
    if unpack(EPOCH, packed, 2) ~= server then
      return 0
    end
    return give_back(key, receipts, count, now_us())
  end)
end
