-- What a process calls when it opens the store: checks where the schema lies (`leap`). Returns whether the numbers leapt.
CREATE OR REPLACE FUNCTION open_1(OUT version int, OUT has_leapt boolean) RETURNS record
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off AS $$
DECLARE
  w record := whereabouts();
BEGIN
  version := (SELECT l.version FROM layout l);
  has_leapt := leap(w.place, w.timeline);
END
$$;
