-- The load: every request is a unique event, signed on the fly (HMAC-SHA256 of libcrypto, called through LuaJIT's FFI).
-- Environment: BENCH_SECRET, BENCH_PREFIX, BENCH_HEAD and BENCH_TAIL (the body around its id), BENCH_PATH, BENCH_RESULT.

local ffi = require("ffi")
ffi.cdef[[
const void *EVP_sha256(void);
unsigned char *HMAC(const void *algorithm, const void *key, int key_length, const unsigned char *text,
                    size_t text_length, unsigned char *digest, unsigned int *digest_length);
]]

local function load_crypto()
  for _, name in ipairs({ "libcrypto.so.3", "libcrypto.so.1.1", "crypto" }) do
    local found, library = pcall(ffi.load, name)
    if found then return library end
  end
  error("no libcrypto: apt-get install libssl3")
end

local crypto = load_crypto()
local secret = assert(os.getenv("BENCH_SECRET"))
local head, tail = assert(os.getenv("BENCH_HEAD")), assert(os.getenv("BENCH_TAIL"))
local name = "evt_" .. assert(os.getenv("BENCH_PREFIX")) .. "_"
local digest, length = ffi.new("unsigned char[32]"), ffi.new("unsigned int[1]")
local hex = {}
for byte = 0, 255 do hex[byte] = string.format("%02x", byte) end

local function sign(text)
  crypto.HMAC(crypto.EVP_sha256(), secret, #secret, ffi.cast("const unsigned char *", text), #text, digest, length)
  local parts = {}
  for i = 0, 31 do parts[i + 1] = hex[digest[i]] end
  return table.concat(parts)
end

local request_line = "POST " .. os.getenv("BENCH_PATH") .. " HTTP/1.1\r\nHost: 127.0.0.1\r\n" ..
  "Content-Type: application/json\r\nUser-Agent: Stripe/1.0 (+https://stripe.com/docs/webhooks)\r\n"
local count = 0

function request()
  count = count + 1
  local body = head .. name .. string.format("%08d", count) .. tail
  local at = tostring(os.time())
  return request_line .. "Stripe-Signature: t=" .. at .. ",v1=" .. sign(at .. "." .. body) ..
    "\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body
end

function done(summary, latency)
  local errors = summary.errors
  local file = assert(io.open(os.getenv("BENCH_RESULT"), "w"))
  file:write(string.format(
    '{"requests":%d,"seconds":%.6f,"p50_ms":%.3f,"p99_ms":%.3f,"max_ms":%.3f,"bad_status":%d,"sockets":%d,"timeouts":%d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    latency.max / 1e3, errors.status, errors.connect + errors.read + errors.write, errors.timeout))
  file:close()
end
