-- Discards dead messages past the queue's retention, the oldest first, where other calls have found more of them than they discard along
-- the way.
--
-- Keys    meta records bodies headers dead dead-by-due dead-keys; all where time has brought something about
-- Reply   nothing but `retain` if there are more, and `bare` if the partition has nothing any more
-- Cost    about 3 µs a message, at most 256 of them
write_though_full()
if not touch() then
  return cmsgpack.pack(out)
end
out.bare = is_bare()
hint()
return cmsgpack.pack(out)
