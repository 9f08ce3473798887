# A mail left Junk by IMAP: it is ham, unless it was thrown away.
require ["copy", "environment", "imap4flags", "special-use", "variables", "vnd.dovecot.imapsieve", "vnd.dovecot.pipe"];

if environment :matches "imap.mailbox" "*" { set "to" "${1}"; }
if environment :is "vnd.dovecot.mailbox-from" "${to}" { stop; }

# The trash is what is called so, or what Dovecot's configuration gives that use to, by whatever name.
if anyof (string :is "${to}" ["Trash", "Deleted Items", "Deleted Messages"], specialuse_exists "${to}" "\\Trash") {
    stop;
}
if hasflag ["\\Deleted", "\\Draft"] { stop; }

if environment :matches "imap.user" "*" { set "user" "${1}"; }
pipe :copy "spamfilter-mark" ["ham", "${user}"];
