-- Queues by name.
--
-- Keys    q r of the directory
-- A.after the name to go on from, if any; A.max how many
-- Reply   `names`, `count` of all
-- Cost    O(log n + page)
local from = A.after and '(' .. A.after or '-'
out.names = call('ZRANGEBYLEX', P .. 'q', from, '+', 'LIMIT', 0, A.max)
out.count = call('ZCARD', P .. 'q')
return cmsgpack.pack(out)
