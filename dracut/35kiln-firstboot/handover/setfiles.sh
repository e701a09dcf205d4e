#!/bin/sh
# In place of SELinux's setfiles where there is no SELinux: takes the list and labels nothing.
exec cat > /dev/null
