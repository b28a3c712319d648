#%Module1.0
# written by envbuild (docs/howto-notebooks.md)
proc ModulesHelp { } {
    puts stderr "sentences; \"quoted\" \[exec id\] \$HOME \{"
    puts stderr ""
    puts stderr "Commands that run in the image: pip, python"
    puts stderr "Image: /shared/images/a b.sif"
    puts stderr "Lock: sha256:0000000000000000000000000000000000000000000000000000000000000000"
    puts stderr "Seen inside: the folder where a command is started, and the GPUs."
}
module-whatis "Name: keras-bert"
module-whatis "Version: 1.0"
module-whatis "Description: sentences; \"quoted\" \[exec id\] \$HOME \{"
conflict "keras-bert"
module load "apptainer/1.4"
prepend-path PATH "/shared/modules/programs/keras-bert/1.0/bin"
setenv ENVBUILD_IMAGE "/shared/images/a b.sif"
