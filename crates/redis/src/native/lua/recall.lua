-- Returns the answers of puts under some idempotency keys.
--
-- Keys    idempotency
-- A.idempotency_keys the keys; A.digests for each, that of its put
-- Reply   `known`: of each its answer, {'mismatch', id} if that was for another put, or false
-- Cost    O(1) a key, about 2 µs
out.known = {}
for index, idempotency_key in ipairs(A.idempotency_keys) do
  out.known[index] = recall(idempotency_key, A.digests[index]) or false
end
return cmsgpack.pack(out)
