# A mail left Junk by IMAP: it is ham, unless it was thrown away. The program below knows the usual names of folders of
# deleted mail, junk, sent mail and drafts, in many languages, and learns nothing for them.
require ["copy", "environment", "imap4flags", "special-use", "variables", "vnd.dovecot.imapsieve", "vnd.dovecot.pipe"];

if environment :matches "imap.mailbox" "*" { set "to" "${1}"; }
if environment :matches "vnd.dovecot.mailbox-from" "*" { set "from" "${1}"; }
if string :matches "${to}" ["${from}", "${from}/*", "${from}.*"] { stop; }

# By whatever name, what Dovecot's configuration gives that use to.
if anyof (specialuse_exists "${to}" "\\Trash", specialuse_exists "${to}" "\\Junk") { stop; }
if hasflag ["\\Deleted", "\\Draft"] { stop; }

if environment :matches "imap.user" "*" { set "user" "${1}"; }
pipe :copy "spamfilter-mark" ["ham", "${user}", "${to}"];
