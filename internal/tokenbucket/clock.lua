-- The library's clock: that of the node that holds the slot, in whole microseconds of unix time. Callers' clocks count
-- for nothing.
local function now_us()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end
