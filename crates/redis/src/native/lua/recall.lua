-- What puts under some tokens were answered.
--
-- Keys    t
-- A.tokens them
-- Reply   `known`: of each its answer, or false
-- Cost    O(1) a token, about 2 µs
out.known = {}
for index, token in ipairs(A.tokens) do
  out.known[index] = recall(token) or false
end
return cmsgpack.pack(out)
