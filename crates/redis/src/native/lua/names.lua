-- Queues by name.
--
-- Keys    queues registrations of the directory
-- A.after the name to go on from, if any; A.max how many
-- Reply   `names`, `count` of all
-- Cost    O(log n + page)
local from = A.after and '(' .. A.after or '-'
out.names = call('ZRANGEBYLEX', P .. 'queues', from, '+', 'LIMIT', 0, A.max)
out.count = call('ZCARD', P .. 'queues')
return cmsgpack.pack(out)
