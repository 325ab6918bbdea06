-- Refusals: SQLSTATE of class DW, the stable code in DETAIL.

CREATE OR REPLACE FUNCTION sqlstate_of(code text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT AS $$
  SELECT CASE code
    WHEN 'due_out_of_range' THEN 'DW001' WHEN 'negative_delay' THEN 'DW002' WHEN 'malformed_delay' THEN 'DW003'
    WHEN 'unknown_level' THEN 'DW004' WHEN 'expires_before_due' THEN 'DW005' WHEN 'malformed_id' THEN 'DW006'
    WHEN 'malformed_receipt' THEN 'DW007' WHEN 'invalid_queue_name' THEN 'DW008' WHEN 'invalid_key' THEN 'DW009'
    WHEN 'invalid_idempotency_key' THEN 'DW010' WHEN 'invalid_header' THEN 'DW011' WHEN 'headers_too_large' THEN 'DW012'
    WHEN 'body_too_large' THEN 'DW013' WHEN 'error_text_too_long' THEN 'DW014' WHEN 'batch_too_large' THEN 'DW015'
    WHEN 'invalid_setting' THEN 'DW016' WHEN 'invalid_argument' THEN 'DW017' WHEN 'malformed_instant' THEN 'DW018'
    WHEN 'key_taken' THEN 'DW101' WHEN 'leased' THEN 'DW102' WHEN 'dead' THEN 'DW103' WHEN 'not_dead' THEN 'DW104'
    WHEN 'message_not_found' THEN 'DW105' WHEN 'lease_lost' THEN 'DW106' WHEN 'unknown_queue' THEN 'DW107'
    WHEN 'idempotency_mismatch' THEN 'DW108' WHEN 'not_leased' THEN 'DW109' WHEN 'lease_changed' THEN 'DW110'
    WHEN 'queue_full' THEN 'DW201' WHEN 'too_many_queues' THEN 'DW202' WHEN 'too_many_leased' THEN 'DW203'
    WHEN 'setting_fixed' THEN 'DW204' WHEN 'busy' THEN 'DW205' WHEN 'overloaded' THEN 'DW206'
    WHEN 'exhausted' THEN 'DW207' WHEN 'session_lost' THEN 'DW209' WHEN 'foreign_data' THEN 'DW208'
    ELSE 'DW000'
  END
$$;

-- The text of a refusal. `info` has the details of the code: an id, a limit, a name.
CREATE OR REPLACE FUNCTION words_of(code text, info text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE code
    WHEN 'due_out_of_range' THEN 'the instant lies outside 1970-01-01 to 9999-12-31 (UTC)'
    WHEN 'negative_delay' THEN 'the delay is negative; a message cannot be due before it is put'
    WHEN 'malformed_delay' THEN 'give a delay, an instant or a level, and only one of them'
    WHEN 'malformed_instant' THEN 'the instant is not finite'
    WHEN 'unknown_level' THEN 'the queue has ' || info || ' delay levels, counted from 1'
    WHEN 'expires_before_due' THEN 'the expiry does not lie after the due instant'
    WHEN 'malformed_id' THEN 'not a message id: a UUID of version 8 is expected'
    WHEN 'malformed_receipt' THEN 'not a receipt: pass it back exactly as take gave it'
    WHEN 'invalid_queue_name' THEN 'no queue can have this name: 1 to 200 of A-Z a-z 0-9 - + / ; . $ _ ( ) : @, not starting with ''-'''
    WHEN 'invalid_key' THEN 'a key has 1 to 512 bytes of UTF-8'
    WHEN 'invalid_idempotency_key' THEN 'an idempotency key has 1 to 256 characters of visible ASCII'
    WHEN 'invalid_header' THEN 'headers are an object of strings; a name is 1 to 200 characters of an HTTP token, a value has no control characters'
    WHEN 'headers_too_large' THEN 'headers have at most 16384 bytes in all'
    WHEN 'body_too_large' THEN 'a body has at most ' || info || ' bytes here'
    WHEN 'error_text_too_long' THEN 'an error text has at most 4096 bytes'
    WHEN 'batch_too_large' THEN 'one call takes at most ' || info || ' items; split it'
    WHEN 'invalid_setting' THEN 'setting ' || info
    WHEN 'invalid_argument' THEN info
    WHEN 'key_taken' THEN 'the key is taken by message ' || info
    WHEN 'leased' THEN 'message ' || info || ' is leased; wait until it is settled or its lease runs out'
    WHEN 'dead' THEN 'message ' || info || ' is dead; revive it first'
    WHEN 'not_dead' THEN 'message ' || info || ' is not dead'
    WHEN 'message_not_found' THEN 'no such message in this queue'
    WHEN 'idempotency_mismatch' THEN 'the idempotency key stands for message ' || info || ', which was put with another body or key'
    WHEN 'overloaded' THEN 'the queue remembers ' || info || ' idempotency keys already; try again later'
    WHEN 'lease_lost' THEN 'the lease is lost: it ran out or was settled, and the message may have gone to somebody else'
    WHEN 'unknown_queue' THEN 'the queue is unknown: it has no messages and no settings of its own'
    WHEN 'queue_full' THEN 'the queue is full: it holds ' || info || ' pending messages; try again later'
    WHEN 'too_many_queues' THEN 'there are ' || info || ' queues already; try again later, or raise the limit'
    WHEN 'setting_fixed' THEN 'setting ' || info || ' cannot change while the queue has messages'
    WHEN 'busy' THEN 'an open transaction holds the key or the message; try again when it has ended'
    WHEN 'foreign_data' THEN info
    WHEN 'session_lost' THEN 'the session is over: it was not heard of in time, or another one began under its name'
    ELSE coalesce(info, code)
  END
$$;

CREATE OR REPLACE FUNCTION refuse(code text, info text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = sqlstate_of(code), MESSAGE = words_of(code, info), DETAIL = code,
    CONSTRAINT = coalesce(info, '');
END
$$;
