# A mail came into Junk by IMAP: it is spam.
require ["copy", "environment", "imap4flags", "variables", "vnd.dovecot.imapsieve", "vnd.dovecot.pipe"];

# From Junk into Junk nothing was said. An upload (APPEND) comes from nowhere, which Dovecot calls Junk as well.
if environment :matches "vnd.dovecot.mailbox-from" "*" { set "from" "${1}"; }
if allof (environment :is "imap.cause" "COPY", environment :is "imap.mailbox" "${from}") { stop; }

# Nor by a mail that is on its way out, or not written yet.
if hasflag ["\\Deleted", "\\Draft"] { stop; }

if environment :matches "imap.user" "*" { set "user" "${1}"; }
pipe :copy "spamfilter-mark" ["spam", "${user}"];
