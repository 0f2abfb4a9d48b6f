/** Gives values the forms that they are read in, and times the day of UTC, whatever the role and the database have. */
export const FORMS = [
  "DateStyle = 'ISO'",
  "TimeZone = 'UTC'",
  'extra_float_digits = 1',
  "bytea_output = 'hex'",
  'standard_conforming_strings = on',
]
  .map((setting) => `SET ${setting}`)
  .join('; ')

/** Lifts the time limits of the role and the database, which are for requests, until the transaction ends. */
export const WITHOUT_TIME_LIMITS = `SELECT set_config("name", '0', true) FROM pg_settings WHERE "name" IN
  ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout')`
