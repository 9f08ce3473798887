# A mail came into Junk by IMAP: it is spam.
require ["copy", "environment", "imap4flags", "variables", "vnd.dovecot.imapsieve", "vnd.dovecot.pipe"];

# From Junk, or from a folder below it, into Junk nothing was said. An upload (APPEND) comes from nowhere, which Dovecot
# calls Junk as well.
if environment :matches "imap.mailbox" "*" { set "to" "${1}"; }
if environment :matches "vnd.dovecot.mailbox-from" "*" { set "from" "${1}"; }
if allof (environment :is "imap.cause" "COPY", string :matches "${from}" ["${to}", "${to}/*", "${to}.*"]) { stop; }

# Nor by a mail that is on its way out, or not written yet.
if hasflag ["\\Deleted", "\\Draft"] { stop; }

if environment :matches "imap.user" "*" { set "user" "${1}"; }
pipe :copy "spamfilter-mark" ["spam", "${user}"];
